package sync_test

import (
	"bytes"
	"maps"
	"math/rand/v2"
	"reflect"
	"testing"
	"time"

	"github.com/regiond/regiond/quota"
	meshsync "github.com/regiond/regiond/sync"
	"github.com/regiond/regiond/sync/wire"
)

// poison is a message that must change nothing, and why it is refused.
type poison struct {
	name    string
	subject string
	data    []byte
	reason  string
}

func TestPoisonChangesNothing(t *testing.T) {
	bubble(t, func(w *world) {
		nodes := three(w)
		us := nodes[1]
		for _, n := range nodes {
			n.totals.Admit(5, n.cell(1))
		}
		sleep(time.Second)
		for _, p := range poisons(w, nodes) {
			totals, peers := us.totals.Snapshot(), us.Peers()
			all, one := us.counter("regiond.sync.refused", "", ""), us.counter("regiond.sync.refused", "reason", p.reason)
			us.bus.Inject(p.subject, p.data)
			sleep(0)
			if !maps.Equal(us.totals.Snapshot(), totals) || !reflect.DeepEqual(us.Peers(), peers) {
				t.Errorf("%s: changed what is known", p.name)
			}
			all, one = us.counter("regiond.sync.refused", "", "")-all, us.counter("regiond.sync.refused", "reason", p.reason)-one
			if all != 1 || one != 1 {
				t.Errorf("%s: refused %d times, as %s %d times", p.name, all, p.reason, one)
			}
		}
		sleep(time.Second)
		if len(us.Peers()) != 2 {
			t.Errorf("now us knows %d processes", len(us.Peers()))
		}
		same(t, nodes...)
	}, "eu", "us", "ap")
}

func poisons(w *world, nodes []*node) []poison {
	eu, us := nodes[0], nodes[1]
	const usage, beat, digest = meshsync.SubjectUsage, meshsync.SubjectHeartbeat, meshsync.SubjectSnapshot
	seq := us.knows(eu).Seq
	random := make([]byte, 300)
	for i := range random {
		random[i] = byte(rand.New(rand.NewPCG(1, uint64(i))).Uint32())
	}
	c := eu.cell(1)
	group := wire.Group{
		Limit: c.Limit, WindowUS: c.WindowUS, BucketUS: c.BucketUS, Bucket: c.Bucket,
		IDs: []uint64{1, 2}, Generations: []int64{c.Generation, c.Generation}, Units: []int64{900, 901},
	}
	change := func(f func(u *wire.Usage)) []byte {
		g := group
		u := wire.Usage{From: eu.self, Seq: seq + 1, TimeUS: eu.timeUS(), Groups: []wire.Group{g}}
		f(&u)
		return wire.AppendUsage(nil, &u)
	}
	heartbeat := func(f func(b *wire.Heartbeat)) []byte {
		b := wire.Heartbeat{From: eu.self, Seq: seq + 1, TimeUS: eu.timeUS(), Members: []string{"us"}, Topology: 1}
		f(&b)
		return wire.AppendHeartbeat(nil, &b)
	}
	good := change(func(*wire.Usage) {})
	other := quota.Process{Region: "us", Instance: "x", Boot: 1}
	return []poison{
		{"random bytes", usage + "eu", random, "malformed"},
		{"nothing", usage + "eu", nil, "malformed"},
		{"truncated", usage + "eu", good[:len(good)/2], "malformed"},
		{"too large", usage + "eu", bytes.Repeat([]byte{1}, wire.MaxMessage+1), "size"},
		{"of another version", usage + "eu", append([]byte{0x08, 0x63}, good[2:]...), "version"},
		{"a beat among usage", usage + "eu", heartbeat(func(*wire.Heartbeat) {}), "malformed"},
		{"another region's name", usage + "eu", change(func(u *wire.Usage) { u.From = other }), "author"},
		{"another region's subject", beat + "ap", heartbeat(func(*wire.Heartbeat) {}), "author"},
		{"a region nobody knows", usage + "mars", change(func(u *wire.Usage) { u.From.Region = "mars" }), "unknown_region"},
		{"a request by such", digest + "us", wire.AppendSnapshotRequest(nil, &wire.SnapshotRequest{From: quota.Process{Region: "mars", Instance: "a", Boot: 1}}), "unknown_region"},
		{"a request to another region", digest + "eu", wire.AppendSnapshotRequest(nil, &wire.SnapshotRequest{From: nodes[2].self}), "author"},
		{"a subject that is none", "rl.v1.other.eu", good, "malformed"},
		{"an earlier life", usage + "ap", change(func(u *wire.Usage) { u.From = quota.Process{Region: "ap", Instance: "a", Boot: 1} }), "stale"},
		{"units below zero", usage + "eu", change(func(u *wire.Usage) { u.Groups[0].Units = []int64{-1, 1} }), "range"},
		{"a bucket below zero", usage + "eu", change(func(u *wire.Usage) { u.Groups[0].Bucket = -1 }), "range"},
		{"columns of unequal length", usage + "eu", change(func(u *wire.Usage) { u.Groups[0].IDs = []uint64{1} }), "malformed"},
		{"a bucket of next year", usage + "eu", change(func(u *wire.Usage) { u.Groups[0].Bucket += 500_000 }), "future"},
		{"a late one with a clock of its own", usage + "eu", change(func(u *wire.Usage) {
			u.Seq, u.TimeUS = 1, u.TimeUS+int64(1e15)
			u.Groups[0].Bucket = u.TimeUS / u.Groups[0].BucketUS
		}), "future"},
		{"a number out of reach", usage + "eu", change(func(u *wire.Usage) { u.Seq = 1 << 60 }), "range"},
		{"a beat out of reach", beat + "eu", heartbeat(func(b *wire.Heartbeat) { b.Seq = 1 << 60 }), "range"},
		{"an echo of its own", usage + "eu", change(func(u *wire.Usage) { u.Origin = "eu" }), "range"},
		{"no time", beat + "eu", heartbeat(func(b *wire.Heartbeat) { b.TimeUS = 0 }), "range"},
	}
}

// A flood of poison does not become a flood of log lines.
func TestRefusalsAreLoggedOnceASecond(t *testing.T) {
	bubble(t, func(w *world) {
		us := three(w)[1]
		for range 1500 {
			us.bus.Inject(meshsync.SubjectUsage+"eu", []byte("?"))
			us.bus.Inject(meshsync.SubjectHeartbeat+"ap", []byte("?"))
			us.bus.Inject(meshsync.SubjectHeartbeat+"mars", []byte("?"))
			sleep(time.Millisecond)
		}
		if n := us.log.count("message refused"); n != 2*3 {
			t.Errorf("%d lines in 1.5 s, from three places", n)
		}
		if n := us.counter("regiond.sync.refused", "", ""); n != 3*1500 {
			t.Errorf("%d counted", n)
		}
	}, "eu", "us", "ap")
}

// More processes than a heartbeat can answer are not taken in, and those that are known
// stay.
func TestCrowdIsBounded(t *testing.T) {
	bubble(t, func(w *world) {
		nodes := three(w)
		us := nodes[1]
		for i := range meshsync.MaxProcesses + 50 {
			b := wire.Heartbeat{From: quota.Process{Region: "eu", Instance: "x" + string(rune('0'+i%10)) + time.Duration(i).String(), Boot: 5}, Seq: 1, TimeUS: 1}
			us.bus.Inject(meshsync.SubjectHeartbeat+"eu", wire.AppendHeartbeat(nil, &b))
		}
		sleep(0)
		if n := len(us.Peers()); n != meshsync.MaxProcesses {
			t.Errorf("%d processes are known", n)
		}
		if n := us.counter("regiond.sync.refused", "reason", "crowded"); n != 52 {
			t.Errorf("%d were refused", n)
		}
		sleep(2 * time.Second)
		if p := us.knows(nodes[0]); !p.Synced || p.Heartbeats < 5 {
			t.Errorf("%+v", p)
		}
	}, "eu", "us", "ap")
}
