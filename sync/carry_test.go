package sync_test

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/regiond/regiond/quota"
	"github.com/regiond/regiond/quota/loan"
	meshsync "github.com/regiond/regiond/sync"
	"github.com/regiond/regiond/sync/wire"
	"github.com/regiond/regiond/test/meshtest"
)

// inbox keeps what the mesh hands on in its process: about loans and resets, and rankings.
type inbox struct {
	mu      sync.Mutex
	wants   []wire.Want
	grants  []wire.Grant
	returns []wire.Return
	from    []string // of returns
	resets  []wire.Reset
	tops    []string
}

func (b *inbox) receivers() meshsync.Receivers {
	return meshsync.Receivers{Loans: b.onLoans, Reset: b.onReset, Top: b.onTop}
}

func (b *inbox) onLoans(m *wire.Loans) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.wants, b.grants, b.returns = append(b.wants, m.Wants...), append(b.grants, m.Grants...), append(b.returns, m.Returns...)
	for range m.Returns {
		b.from = append(b.from, m.From.Region)
	}
}

func (b *inbox) onReset(r *wire.Reset) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.resets = append(b.resets, *r)
}

func (b *inbox) onTop(from quota.Process, payload []byte) error {
	if string(payload) == "bad" {
		return errors.New("no counts")
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.tops = append(b.tops, from.Region+" "+string(payload))
	return nil
}

// count is how many wants, grants and returns were received.
func (b *inbox) count() [3]int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return [3]int{len(b.wants), len(b.grants), len(b.returns)}
}

// others is what else was received, and forgets it.
func (b *inbox) others() (resets []wire.Reset, tops []string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	resets, tops, b.resets, b.tops = b.resets, b.tops, nil, nil
	return resets, tops
}

// carry runs f with a process in each of three regions and a second one in us, once they have met.
// eu has the cuts.
func carry(t *testing.T, cuts map[string][]wire.Cut, f func(w *world, eu, us *node)) {
	t.Helper()
	bubble(t, func(w *world) {
		w.net.SetAll(meshtest.Link{Latency: oneWay}, w.regions...)
		eu := w.newNode("eu", "a", 1, 0)
		eu.resets = cuts
		eu.carry()
		us := w.newNode("us", "a", 2, 0)
		us.carry()
		w.nodes = []*node{eu, us, w.newNode("us", "b", 3, 0), w.newNode("ap", "a", 4, 0)}
		w.nodes[2].carry()
		w.nodes[3].carry()
		sleep(2 * time.Second)
		f(w, eu, us)
	}, "eu", "us", "ap")
}

// carry starts a process that keeps what it receives.
func (n *node) carry() {
	n.inbox, n.counters = &inbox{}, newCounters(n)
	n.start(n.counters)
}

var (
	partition = quota.CounterKey{Tenant: "acme", Policy: "standard", Limit: "sustained", Partition: "::", WindowUS: 60_000_000}
	held      = loan.ID{Epoch: 7, Stamp: startUS}
)

// wanted is a want of the partition with that number.
func (n *node) wanted(id uint64) wire.Want {
	return wire.Want{PartitionID: id, Want: loan.Want{Epoch: 1, Time: n.timeUS(), Lack: 3, Share: 200}}
}

// sendWants has wants published.
func (n *node) sendWants(wants ...wire.Want) { n.SendLoans("", &wire.Loans{Wants: wants}) }

func TestLoansTravel(t *testing.T) {
	carry(t, nil, func(all *world, eu, us *node) {
		sibling, ap := all.nodes[2], all.nodes[3]
		w := eu.wanted(eu.key().LoansID(&partition))
		w.Partition = &partition
		eu.sendWants(w)
		sleep(2 * oneWay)
		for _, n := range all.nodes[1:] {
			if got := n.inbox.count(); got != [3]int{1, 0, 0} {
				t.Fatalf("%s received %v wants, grants and returns", n.self.Region, got)
			}
			want := w
			want.From = "eu"
			if diff := cmp.Diff([]wire.Want{want}, n.inbox.wants, cmpopts.IgnoreFields(wire.Want{}, "Sealed")); diff != "" {
				t.Errorf("%s (-want +got):\n%s", n.self.Region, diff)
			}
		}
		if got := eu.inbox.count(); got != [3]int{} {
			t.Errorf("eu received %v itself", got)
		}
		us.SendLoans("eu", &wire.Loans{Grants: []wire.Grant{{PartitionID: w.PartitionID, Grant: loan.Grant{ID: held, Units: 3, New: true, Epoch: 1, Time: w.Time}}}})
		us.SendLoans("ap", &wire.Loans{Returns: []wire.Return{{PartitionID: w.PartitionID, Loan: held, Back: 2}}})
		sleep(2 * oneWay)
		if got := eu.inbox; got.count() != [3]int{0, 1, 0} || got.grants[0].From != "us" || got.grants[0].Units != 3 {
			t.Errorf("eu received %+v", got.grants)
		}
		if got := ap.inbox; got.count() != [3]int{1, 0, 1} || got.from[0] != "us" || got.returns[0].Back != 2 {
			t.Errorf("ap received %+v from %v", got.returns, got.from)
		}
		if got := sibling.inbox.count(); got != [3]int{1, 0, 0} {
			t.Errorf("the sibling received %v", got)
		}
	})
}

// What the bus does not take, and what nobody else receives, is dropped; a batch that is too
// large for the bus goes in pieces.
func TestLoansDropped(t *testing.T) {
	carry(t, nil, func(w *world, eu, us *node) {
		sent := eu.spy()
		eu.bus.SetLimit(8_000)
		var many []wire.Want
		for i := range uint64(3000) {
			many = append(many, eu.wanted(i*0x9e3779b97f4a7c15))
		}
		eu.sendWants(many...)
		sleep(2 * oneWay)
		eu.bus.SetLimit(0)
		if n := len(sent(meshsync.SubjectLoan)); n < 4 || us.inbox.count() != [3]int{3000, 0, 0} {
			t.Errorf("%v arrived in %d messages", us.inbox.count(), n)
		}
		eu.sendWants(many...)
		sleep(2 * oneWay)
		if us.inbox.count() != [3]int{6000, 0, 0} {
			t.Errorf("%v arrived of %d that are too many for one message", us.inbox.count(), len(many))
		}
		eu.bus.Down()
		eu.sendWants(eu.wanted(1))
		sleep(time.Second)
		eu.bus.Up()
		eu.sendWants(make([]wire.Want, 20_000)...) // more than is queued for the goroutine that publishes
		sleep(time.Second)
		if n := eu.counter("regiond.sync.loans_dropped"); n != 1+20_000 {
			t.Errorf("%d were dropped", n)
		}
		for _, n := range []string{"us", "ap"} {
			w.net.Set(n, "eu", meshtest.Link{Cut: true})
		}
		sleep(2 * time.Second)
		sent = eu.spy()
		eu.sendWants(eu.wanted(1))
		sleep(time.Second)
		if n := len(sent(meshsync.SubjectLoan)); n != 0 {
			t.Errorf("%d wants were published while nobody is received", n)
		}
	})
}

// A message about a reset reaches all processes and shows no tenant to the bus. The record of a request to
// delete is refused; a cut may come again.
func TestResetsTravel(t *testing.T) {
	carry(t, nil, func(w *world, eu, us *node) {
		sent := eu.spy()
		to := []quota.Process{us.self}
		eu.SendReset(wire.Reset{ID: 7, Tenant: "acme", To: to})
		sleep(time.Second)
		eu.SendReset(wire.Reset{ID: 7, Tenant: "acme", Cuts: []wire.Cut{{Region: "eu", UpTo: startUS}}})
		sleep(time.Second)
		for _, n := range w.nodes[1:] {
			all, _ := n.inbox.others()
			if len(all) != 2 || all[0].Tenant != "acme" || all[0].ID != 7 || !slices.Equal(all[0].To, to) || len(all[1].Cuts) != 1 {
				t.Errorf("%s received %+v", n.self.Region, all)
			}
		}
		for _, m := range sent(meshsync.SubjectReset) {
			if bytes.Contains(m.Data, []byte("acme")) {
				t.Errorf("the tenant is in clear in %q", m.Data)
			}
			for range 3 {
				us.bus.Inject(m.Subject, m.Data)
			}
		}
		sleep(0)
		if all, _ := us.inbox.others(); len(all) != 3 || len(all[0].Cuts) != 1 {
			t.Errorf("of records it took %+v", all)
		}
		if n := us.counter("regiond.sync.refused", "reason", "stale"); n != 3 {
			t.Errorf("%d records of a request were refused", n)
		}
	})
}

// flooded calls flood, once it is set, before the next message: on the goroutine that publishes, so that the queue stays as it is.
type flooded struct {
	meshsync.Bus
	flood atomic.Pointer[func()]
}

func (b *flooded) Publish(subject string, data []byte, header ...meshsync.Field) error {
	if f := b.flood.Swap(nil); f != nil {
		(*f)()
	}
	return b.Bus.Publish(subject, data, header...)
}

// Overrides that fill the queue, as after the loss of a table, leave room for resets. Whoever sends them is told, so none counts
// as one that the bus did not take.
func TestOverridesLeaveRoomForResets(t *testing.T) {
	bubble(t, func(w *world) {
		w.net.SetAll(meshtest.Link{Latency: oneWay}, w.regions...)
		bus := &flooded{}
		eu, us := w.newNode("eu", "a", 1, 0), w.newNode("us", "a", 2, 0)
		eu.via = func(b meshsync.Bus) meshsync.Bus { bus.Bus = b; return bus }
		w.nodes = []*node{eu, us}
		eu.carry()
		us.carry()
		sleep(2 * time.Second)
		flood := func() {
			for range 50_000 {
				eu.SendOverrides([]byte("payload"))
			}
			eu.SendReset(wire.Reset{ID: 7, Tenant: "acme", Cuts: []wire.Cut{{Region: "eu", UpTo: startUS}}})
		}
		bus.flood.Store(&flood)
		sleep(2 * time.Second)
		if all, _ := us.inbox.others(); len(all) != 1 || all[0].ID != 7 {
			t.Errorf("us received the resets %+v", all)
		}
		if n := eu.counter("regiond.sync.publish_errors"); n != 0 {
			t.Errorf("%d messages count as not taken by the bus", n)
		}
	}, "eu", "us")
}

// Who starts, or was cut off, is given the cuts of all tenants.
func TestCutsAreRepeated(t *testing.T) {
	cuts := []wire.Cut{{Region: "us", UpTo: startUS, State: wire.CutDeleted}}
	carry(t, map[string][]wire.Cut{"globex": cuts}, func(w *world, _, us *node) {
		given := func(when string, n *node) {
			t.Helper()
			all, _ := n.inbox.others()
			if !slices.ContainsFunc(all, func(r wire.Reset) bool { return r.Tenant == "globex" && len(r.To) == 0 && slices.Equal(r.Cuts, cuts) }) {
				t.Errorf("%s %s/%s received %+v", when, n.self.Region, n.self.Instance, all)
			}
		}
		late := w.newNode("us", "c", 9, 0)
		late.carry()
		sleep(2 * time.Second)
		given("at its start", late)
		w.net.SetAll(meshtest.Link{Cut: true}, "us", "eu")
		sleep(5 * time.Second)
		us.inbox.others()
		w.net.SetAll(meshtest.Link{Latency: oneWay}, "us", "eu")
		sleep(5 * time.Second)
		given("after the heal", us)
	})
}

// Of payloads that wait the newest travels, once, sealed, to all other processes; one that its recipient
// refuses is counted.
func TestTopsTravel(t *testing.T) {
	carry(t, nil, func(w *world, eu, us *node) {
		sent := eu.spy()
		for _, payload := range []string{"old", "new"} {
			eu.SendTop([]byte(payload))
		}
		sleep(time.Second)
		eu.SendTop([]byte("bad"))
		sleep(time.Second)
		if records := sent(meshsync.SubjectTop); len(records) != 2 || bytes.Contains(records[0].Data, []byte("new")) {
			t.Errorf("sent %q", records)
		}
		for _, n := range w.nodes {
			_, tops := n.inbox.others()
			if got := slices.Equal(tops, []string{"eu new"}); got == (n == eu) {
				t.Errorf("%s received %q", n.self.Region, tops)
			}
		}
		if n := us.counter("regiond.sync.refused", "reason", "range"); n != 1 || us.counter("regiond.sync.received", "kind", "top") != 1 {
			t.Errorf("%d messages refused", n)
		}
	})
}

// What a bus takes but no peer reads is divided too.
func TestLoansBeyondTheCaps(t *testing.T) {
	for name, of := range map[string]struct{ text, held int }{
		"names": {250, 0}, "loans": {0, 5}, "both, which only fit compressed": {100, 4},
	} {
		t.Run(name, func(t *testing.T) {
			carry(t, nil, func(_ *world, eu, us *node) {
				eu.bus.SetLimit(1 << 20)
				var many []wire.Want
				for i := range wire.MaxLoans {
					w := eu.wanted(uint64(i) * 0x9e3779b97f4a7c15)
					if p := partition; of.text > 0 {
						p.Partition = fmt.Sprint("::", strings.Repeat("n", of.text), w.PartitionID)
						w.PartitionID, w.Partition = eu.key().LoansID(&p), &p
					}
					for i := range int64(of.held) {
						w.Held = append(w.Held, loan.Loan{Peer: "us", ID: loan.ID{Epoch: 7, Stamp: w.Time + i}, Units: 5, Until: w.Time + 60_000_000})
					}
					many = append(many, w)
				}
				eu.sendWants(many...)
				sleep(2 * oneWay)
				if got := us.inbox.count(); got != [3]int{wire.MaxLoans, 0, 0} {
					t.Errorf("%v arrived; refused %d by size", got, us.counter("regiond.sync.refused", "reason", "size"))
				}
			})
		})
	}
}
