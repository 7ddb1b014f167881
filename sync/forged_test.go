package sync_test

import (
	"bytes"
	"maps"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/regiond/regiond/quota"
	"github.com/regiond/regiond/quota/loan"
	meshsync "github.com/regiond/regiond/sync"
	"github.com/regiond/regiond/sync/wire"
)

// recorded runs f with messages of every kind that eu has published to us, once everybody has
// received them.
func recorded(t *testing.T, f func(eu, us *node, sent []meshsync.Message)) {
	t.Helper()
	carry(t, nil, func(w *world, eu, us *node) {
		sent := eu.spy()
		eu.admit(50, 3)
		want := eu.wanted(eu.key().LoansID(&partition))
		want.Partition = &partition
		eu.sendWants(want)
		eu.SendLoans("us", &wire.Loans{Grants: []wire.Grant{{PartitionID: want.PartitionID, Grant: loan.Grant{ID: held, Units: 3, Epoch: 1, Time: startUS}}}})
		eu.SendReset(wire.Reset{ID: 7, Tenant: "acme", To: []quota.Process{us.self}})
		eu.SendTop([]byte("counts"))
		sleep(time.Second)
		ap := w.join("us", "c", 9, 0) // requests a snapshot, and gets one
		sleep(2 * time.Second)
		ap.stop()
		sleep(time.Second)
		kinds, list := map[string]bool{}, sent("")
		for _, m := range list {
			kinds[m.Subject[:len("rl.v1.us")]] = true
		}
		if len(kinds) != 6 {
			t.Fatalf("not every kind of message was published: %v", kinds)
		}
		f(eu, us, list)
	})
}

// known is all that messages may change in a process.
func (n *node) known() any {
	return []any{n.counters.Snapshot(), n.Peers(), n.inbox.count(), len(n.inbox.resets), len(n.inbox.tops), n.counter("regiond.sync.received")}
}

// Nothing that was not signed for its subject by a holder of the key changes anything.
func TestForgedMessages(t *testing.T) {
	recorded(t, func(eu, us *node, sent []meshsync.Message) {
		fresh := wire.Append(nil, &wire.Usage{Head: wire.Head{From: eu.self, Seq: us.knows(eu).Seq + 5}, Number: 900, TimeUS: eu.timeUS(), Groups: group(eu.cell(1), 900)})
		subject := meshsync.SubjectUsage + "eu"
		forged := []meshsync.Message{
			{Subject: subject, Data: fresh},
			{Subject: subject, Data: secretOf(t, "test", "a guess").Sign(subject, bytes.Clone(fresh))},
			{Subject: subject, Data: secretOf(t, "test").Sign(subject, bytes.Clone(fresh))}, // by the cluster's name
			{Subject: subject, Data: secretOf(t, "another cluster", "the shared key").Sign(subject, bytes.Clone(fresh))},
			{Subject: subject, Data: secret(t).Sign(meshsync.SubjectUsage+"us", bytes.Clone(fresh))},
			{Subject: subject, Data: secret(t).Sign(subject+"\x00", bytes.Clone(fresh))},
			{Subject: subject, Data: append(secret(t).Sign(subject, bytes.Clone(fresh)), 0)},
			{Subject: subject, Data: slices.Concat(secret(t).Sign(subject, bytes.Clone(fresh)), fresh)},
			{Subject: subject, Data: append(bytes.Clone(fresh), sent[0].Data[len(sent[0].Data)-18:]...)}, // another one's MAC
		}
		for _, m := range sent {
			for n := range m.Data {
				if n%7 < 2 || n > len(m.Data)-20 { // not all of them, for time
					flipped := bytes.Clone(m.Data)
					flipped[n] ^= 1 << (n % 8)
					forged = append(forged, meshsync.Message{Subject: m.Subject, Data: flipped}, meshsync.Message{Subject: m.Subject, Data: m.Data[:n]})
				}
			}
			for _, s := range []string{"rl.v1.usage.us", "rl.v1.usage.ap", "rl.v1.heartbeat.ap", "rl.v1.snapshot.us", "rl.v1.loan.ap._all", "rl.v1.loan.eu.ap", "rl.v1.loan.ap.us"} {
				if s != m.Subject {
					forged = append(forged, meshsync.Message{Subject: s, Data: m.Data})
				}
			}
		}
		before, all := us.known(), us.counter("regiond.sync.refused")
		for _, m := range forged {
			us.bus.Inject(m.Subject, m.Data)
			sleep(0)
			all++
			if after := us.known(); !reflect.DeepEqual(before, after) {
				t.Fatalf("%s, %x changed what is known:\n%v\n%v", m.Subject, m.Data, before, after)
			}
			if n := us.counter("regiond.sync.refused"); n != all {
				t.Fatalf("%s, %x was refused %d times", m.Subject, m.Data, n-all+1)
			}
		}
		if n := us.counter("regiond.sync.refused", "reason", "mac"); n < int64(len(forged))/2 {
			t.Errorf("of %d forged messages %d were refused for their MAC", len(forged), n)
		}
		if n := len(us.log.Lines("message refused")); n > 3 { // one for each region
			t.Errorf("%d lines about them in no time", n)
		}
	})
}

// What was recorded changes nothing when it comes again, in any order.
func TestRepeatedMessages(t *testing.T) {
	recorded(t, func(_, us *node, sent []meshsync.Message) {
		before := us.known().([]any)
		for _, list := range [][]meshsync.Message{sent, backward(sent), sent} {
			for _, m := range list {
				us.bus.Inject(m.Subject, m.Data)
			}
			sleep(0)
		}
		after := us.known().([]any)
		if n := len(before) - 1; !reflect.DeepEqual(before[:n], after[:n]) { // all but how many messages were used
			t.Errorf("%v\nbecame\n%v", before, after)
		}
	})
}

// Whoever has no key can keep messages and send them again, at the pace at which they came. Of a
// former life of the process itself they change nothing, and do not silence it.
func TestRecordsOfAFormerLife(t *testing.T) {
	meet(t, func(w *world, eu, us, ap *node) {
		sent := us.spy()
		us.admit(20, 3)
		sleep(4 * time.Second)
		records := sent("")
		us.kill()
		sleep(5 * time.Second)
		again := w.join("us", "a", 100, 0)
		sleep(5 * time.Second)
		counters, peers := again.counters.Snapshot(), len(again.Peers())
		for _, m := range records {
			again.bus.Inject(m.Subject, m.Data)
			ap.bus.Inject(m.Subject, m.Data)
			sleep(20 * time.Millisecond)
			if d, yes := again.Duplicate(); yes {
				t.Fatalf("a record passes for another process with our name: %+v", d)
			}
		}
		if len(again.Peers()) != peers || !maps.Equal(counters, again.counters.Snapshot()) {
			t.Errorf("%d peers, counters %v became %v", len(again.Peers()), counters, again.counters.Snapshot())
		}
		if p := ap.knows(again); p.ReceivedAt < ap.now()-time.Second {
			t.Error("records silenced a process")
		}
	})
}

// Keys are replaced in three steps, each of them process by process, and no message is refused.
func TestKeysAreReplaced(t *testing.T) {
	meet(t, func(w *world, eu, us, ap *node) {
		for _, keys := range [][]string{{"the shared key", "new"}, {"new", "the shared key"}, {"new"}} {
			for _, n := range w.nodes {
				n.SetSecret(secretOf(t, "test", keys...))
				n.admit(20, 2)
				sleep(time.Second)
			}
		}
		for _, n := range w.nodes {
			if refused := n.counter("regiond.sync.refused"); refused != 0 {
				t.Errorf("%s refused %d messages", n.self.Region, refused)
			}
		}
		same(t, w.nodes...)
		s := secret(t) // of the old key alone
		us.bus.Inject(meshsync.SubjectHeartbeat+"ap", s.Sign(meshsync.SubjectHeartbeat+"ap", wire.Append(nil, &wire.Heartbeat{Head: wire.Head{From: ap.self, Seq: 1 << 15}, TimeUS: ap.timeUS()})))
		sleep(0)
		if refused := us.counter("regiond.sync.refused", "reason", "mac"); refused != 1 {
			t.Errorf("a message by the key that is gone: refused %d times", refused)
		}
	})
}

// A process of an older version is out of sight: nothing of it is used, and it gets no wants.
func TestOlderVersion(t *testing.T) {
	bubble(t, func(w *world) {
		eu := w.newNode("eu", "a", 1, 0)
		eu.carry()
		sent := eu.spy()
		for range 30 {
			b := wire.Append(nil, &wire.Heartbeat{Head: wire.Head{From: quota.Process{Region: "us", Instance: "a", Boot: 1}, Seq: 1}, TimeUS: 1})
			b[1] = wire.Version - 1
			eu.bus.Inject(meshsync.SubjectHeartbeat+"us", b)
			eu.sendWants(eu.wanted(1))
			sleep(100 * time.Millisecond)
		}
		if n := eu.counter("regiond.sync.refused", "reason", "version"); n != 30 || len(eu.Peers()) != 0 || len(sent(meshsync.SubjectLoan)) != 0 {
			t.Errorf("%d refused, %d peers, and wants for them", n, len(eu.Peers()))
		}
	}, "eu", "us")
}

func backward(list []meshsync.Message) []meshsync.Message {
	list = slices.Clone(list)
	slices.Reverse(list)
	return list
}
