package sync_test

import (
	"sync"
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

// lender keeps what its process receives about loans.
type lender struct {
	mu      sync.Mutex
	wants   []wire.Want
	grants  []wire.Grant
	returns []wire.Return
	from    []string // of returns
}

func (l *lender) receive(m *wire.Loans) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.wants, l.grants, l.returns = append(l.wants, m.Wants...), append(l.grants, m.Grants...), append(l.returns, m.Returns...)
	for range m.Returns {
		l.from = append(l.from, m.From.Region)
	}
}

// count is how many wants, grants and returns were received.
func (l *lender) count() [3]int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return [3]int{len(l.wants), len(l.grants), len(l.returns)}
}

// lend runs f with a process in each of two regions and a second one in us, once they have met.
func lend(t *testing.T, f func(w *world, eu, us *node, at map[string]*lender)) {
	t.Helper()
	bubble(t, func(w *world) {
		w.net.SetAll(meshtest.Link{Latency: oneWay}, w.regions...)
		at := map[string]*lender{}
		join := func(region, instance string, boot int64) *node {
			n := w.newNode(region, instance, boot, 0)
			n.counters = newCounters(n)
			at[region+instance] = &lender{}
			n.loans = at[region+instance].receive
			n.start(n.counters)
			return n
		}
		eu, us := join("eu", "a", 1), join("us", "a", 2)
		join("us", "b", 3)
		join("ap", "a", 4)
		sleep(2 * time.Second)
		f(w, eu, us, at)
	}, "eu", "us", "ap")
}

var (
	partition = quota.CounterKey{Tenant: "acme", Policy: "standard", Limit: "sustained", Partition: "::"}
	held      = loan.ID{Epoch: 7, Stamp: startUS}
)

// wanted is a want of the partition with that number.
func (n *node) wanted(id uint64) wire.Want {
	return wire.Want{PartitionID: id, Want: loan.Want{Epoch: 1, Time: n.timeUS(), Lack: 3, Share: 200}}
}

// sendWants has wants published.
func (n *node) sendWants(wants ...wire.Want) { n.SendLoans("", &wire.Loans{Wants: wants}) }

func TestLoansTravel(t *testing.T) {
	lend(t, func(_ *world, eu, us *node, at map[string]*lender) {
		w := eu.wanted(eu.key().CounterID(&partition))
		w.Partition = &partition
		eu.sendWants(w)
		sleep(2 * oneWay)
		for _, name := range []string{"usa", "usb", "apa"} {
			if got := at[name].count(); got != [3]int{1, 0, 0} {
				t.Fatalf("%s received %v wants, grants and returns", name, got)
			}
			want := w
			want.From = "eu"
			if diff := cmp.Diff([]wire.Want{want}, at[name].wants, cmpopts.IgnoreFields(wire.Want{}, "Sealed")); diff != "" {
				t.Errorf("%s (-want +got):\n%s", name, diff)
			}
		}
		if got := at["eua"].count(); got != [3]int{} {
			t.Errorf("eu received %v itself", got)
		}
		us.SendLoans("eu", &wire.Loans{Grants: []wire.Grant{{PartitionID: w.PartitionID, Grant: loan.Grant{ID: held, Units: 3, New: true, Epoch: 1, Time: w.Time}}}})
		us.SendLoans("ap", &wire.Loans{Returns: []wire.Return{{PartitionID: w.PartitionID, Loan: held, Back: 2}}})
		sleep(2 * oneWay)
		if got := at["eua"]; got.count() != [3]int{0, 1, 0} || got.grants[0].From != "us" || got.grants[0].Units != 3 {
			t.Errorf("eu received %+v", got.grants)
		}
		if got := at["apa"]; got.count() != [3]int{1, 0, 1} || got.from[0] != "us" || got.returns[0].Back != 2 {
			t.Errorf("ap received %+v from %v", got.returns, got.from)
		}
		if got := at["usb"].count(); got != [3]int{1, 0, 0} {
			t.Errorf("the sibling received %v", got)
		}
	})
}

// A want that was recorded and comes again later, or after a newer one, changes nothing.
func TestLoansThatComeAgain(t *testing.T) {
	lend(t, func(_ *world, eu, us *node, at map[string]*lender) {
		sent := eu.spy()
		eu.sendWants(eu.wanted(1))
		sleep(time.Second)
		eu.sendWants(eu.wanted(2))
		sleep(time.Second)
		old := sent(meshsync.SubjectLoan)
		if len(old) != 2 || at["usa"].count() != [3]int{2, 0, 0} {
			t.Fatalf("%d messages, received %v", len(old), at["usa"].count())
		}
		for range 3 {
			us.bus.Inject(old[0].Subject, old[0].Data)
			us.bus.Inject(old[1].Subject, old[1].Data)
		}
		sleep(0)
		if got := at["usa"].count(); got != [3]int{2, 0, 0} {
			t.Errorf("after repeats %v", got)
		}
		if n := us.counter("regiond.sync.refused", "reason", "stale"); n != 6 {
			t.Errorf("%d were refused as stale", n)
		}
	})
}

// What the bus does not take, and what nobody else receives, is dropped; a batch that is too
// large for the bus goes in pieces.
func TestLoansDropped(t *testing.T) {
	lend(t, func(w *world, eu, us *node, at map[string]*lender) {
		sent := eu.spy()
		eu.bus.Limit(8_000)
		var many []wire.Want
		for i := range uint64(3000) {
			many = append(many, eu.wanted(i*0x9e3779b97f4a7c15))
		}
		eu.sendWants(many...)
		sleep(2 * oneWay)
		eu.bus.Limit(0)
		if n := len(sent(meshsync.SubjectLoan)); n < 4 || at["usa"].count() != [3]int{3000, 0, 0} {
			t.Errorf("%v arrived in %d messages", at["usa"].count(), n)
		}
		eu.sendWants(many...)
		sleep(2 * oneWay)
		if at["usa"].count() != [3]int{6000, 0, 0} {
			t.Errorf("%v arrived of %d that are too many for one message", at["usa"].count(), len(many))
		}
		eu.bus.Down()
		eu.sendWants(eu.wanted(1))
		sleep(time.Second)
		eu.bus.Up()
		eu.sendWants(make([]wire.Want, 20_000)...) // more than is queued for the goroutine that publishes
		sleep(time.Second)
		if n := eu.counter("regiond.sync.loans_dropped", "", ""); n != 1+20_000 {
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
