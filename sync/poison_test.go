package sync_test

import (
	"bytes"
	"maps"
	"reflect"
	"testing"
	"time"

	"github.com/regiond/regiond/quota"
	meshsync "github.com/regiond/regiond/sync"
	"github.com/regiond/regiond/sync/wire"
)

// refused is a message that must change nothing, and the reason of its refusal.
type refused struct {
	name    string
	subject string
	data    []byte // signed before it is sent, unless bare
	reason  string
	bare    bool
}

func TestRefusedMessages(t *testing.T) {
	meet(t, func(w *world, eu, us, ap *node) {
		for _, n := range w.nodes {
			n.counters.Admit(5, n.cell(1))
		}
		sleep(time.Second)
		for _, p := range refusedMessages(eu, us, ap) {
			counters, peers := us.counters.Snapshot(), us.Peers()
			all, one := us.counter("regiond.sync.refused"), us.counter("regiond.sync.refused", "reason", p.reason)
			if p.bare {
				us.bus.Inject(p.subject, p.data)
			} else {
				us.inject(p.subject, p.data)
			}
			sleep(0)
			if !maps.Equal(us.counters.Snapshot(), counters) || !reflect.DeepEqual(us.Peers(), peers) {
				t.Errorf("%s: changed what is known", p.name)
			}
			all, one = us.counter("regiond.sync.refused")-all, us.counter("regiond.sync.refused", "reason", p.reason)-one
			if all != 1 || one != 1 {
				t.Errorf("%s: refused %d times, as %s %d times", p.name, all, p.reason, one)
			}
		}
		sleep(time.Second)
		if len(us.Peers()) != 2 {
			t.Errorf("now us knows %d processes", len(us.Peers()))
		}
		same(t, w.nodes...)
	})
}

func refusedMessages(eu, us, ap *node) []refused {
	const usage, beats, requests = meshsync.SubjectUsage, meshsync.SubjectHeartbeat, meshsync.SubjectSnapshot
	seq := us.knows(eu).Seq
	c := eu.cell(1)
	change := func(f func(u *wire.Usage)) []byte {
		u := wire.Usage{Head: wire.Head{From: eu.self, Seq: seq + 1}, Number: 1, TimeUS: eu.timeUS(), Groups: group(c, 900)}
		f(&u)
		return wire.Append(nil, &u)
	}
	heartbeat := func(f func(b *wire.Heartbeat)) []byte {
		b := wire.Heartbeat{Head: wire.Head{From: eu.self, Seq: seq + 1}, TimeUS: eu.timeUS(), Members: []string{"us"}, Topology: 1}
		f(&b)
		return wire.Append(nil, &b)
	}
	good := change(func(*wire.Usage) {})
	other := quota.Process{Region: "us", Instance: "x", Boot: 1}
	return []refused{
		{"nothing", usage + "eu", nil, "malformed", true},
		{"truncated", usage + "eu", good[:len(good)/2], "mac", true},
		{"unsigned", usage + "eu", good, "mac", true},
		{"too large", usage + "eu", bytes.Repeat([]byte{1}, wire.MaxMessage+1), "size", true},
		{"of another version", usage + "eu", append([]byte{0x08, 0x63}, good[2:]...), "version", true},
		{"a heartbeat among usage", usage + "eu", heartbeat(func(*wire.Heartbeat) {}), "malformed", false},
		{"another region's name", usage + "eu", change(func(u *wire.Usage) { u.From = other }), "author", false},
		{"another region's subject", beats + "ap", heartbeat(func(*wire.Heartbeat) {}), "author", false},
		{"an unknown region", usage + "mars", change(func(u *wire.Usage) { u.From.Region = "mars" }), "unknown_region", false},
		{"a request by an unknown region", requests + "us", wire.Append(nil, &wire.SnapshotRequest{From: quota.Process{Region: "mars", Instance: "a", Boot: 1}, To: us.self, Request: 1}), "unknown_region", false},
		{"a request to another region", requests + "eu", wire.Append(nil, &wire.SnapshotRequest{From: ap.self, To: eu.self, Request: 1}), "author", false},
		{"an unknown subject", "rl.v1.other.eu", good, "malformed", false},
		{"an earlier boot", usage + "ap", change(func(u *wire.Usage) { u.From = quota.Process{Region: "ap", Instance: "a", Boot: 1} }), "stale", false},
		{"a number out of range", usage + "eu", change(func(u *wire.Usage) { u.Seq = 1 << 60 }), "range", false},
		{"the number of a heartbeat out of range", beats + "eu", heartbeat(func(b *wire.Heartbeat) { b.Seq = 1 << 60 }), "range", false},
		{"forwarded counters of its own region", usage + "eu", change(func(u *wire.Usage) { u.Origin, u.OriginTimeUS = "eu", u.TimeUS }), "range", false},
		{"forwarded counters without a clock", usage + "eu", change(func(u *wire.Usage) { u.Origin = "mars" }), "range", false},
	}
}

// There are no more than MaxProcesses peers, and those that came first stay.
func TestMaxProcesses(t *testing.T) {
	meet(t, func(_ *world, eu, us, _ *node) {
		for i := range meshsync.MaxProcesses + 50 {
			b := wire.Heartbeat{Head: wire.Head{From: quota.Process{Region: "eu", Instance: "x" + string(rune('0'+i%10)) + time.Duration(i).String(), Boot: 5}, Seq: 1}, TimeUS: 1}
			us.inject(meshsync.SubjectHeartbeat+"eu", wire.Append(nil, &b))
		}
		sleep(0)
		if n := len(us.Peers()); n != meshsync.MaxProcesses {
			t.Errorf("%d processes are known", n)
		}
		if n := us.counter("regiond.sync.refused", "reason", "crowded"); n != 52 {
			t.Errorf("%d were refused", n)
		}
		sleep(2 * time.Second)
		if p := us.knows(eu); !p.Synced || p.Heartbeats < 5 {
			t.Errorf("%+v", p)
		}
	})
}
