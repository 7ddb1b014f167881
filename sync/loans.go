package sync

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/regiond/regiond/quota"
	"github.com/regiond/regiond/sync/wire"
)

// LoanReceiver receives what processes of other regions send about loans, from the goroutine
// of Run. Its methods must return at once; they own what they are given.
type LoanReceiver interface {
	// Wanted is given wants of all partitions, those of siblings too; Want.From is the region.
	Wanted(wants []wire.Want)
	// Granted is given what another region has lent to ours; Grant.From is the region.
	Granted(grants []wire.Grant)
	// Returned is given what another region has given back to ours.
	Returned(from string, returns []wire.Return)
}

// maxLoansQueued bounds the wants, grants and returns that wait for the goroutine of Run.
const maxLoansQueued = 8 * wire.MaxLoans

// loanQueue holds what is to be published about loans.
type loanQueue struct {
	ready chan struct{} // has something in it while there is something

	mu  sync.Mutex
	out map[string]*wire.Loans // by recipient
	n   int
}

func newLoanQueue() loanQueue {
	return loanQueue{ready: make(chan struct{}, 1), out: map[string]*wire.Loans{}}
}

// add has put add n entries for a recipient, and reports whether there was room.
func (q *loanQueue) add(to string, n int, put func(l *wire.Loans)) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.n+n > maxLoansQueued {
		return false
	}
	if q.out[to] == nil {
		q.out[to] = &wire.Loans{}
	}
	put(q.out[to])
	q.n += n
	signal(q.ready)
	return true
}

func (q *loanQueue) take() map[string]*wire.Loans {
	q.mu.Lock()
	defer q.mu.Unlock()
	out := q.out
	q.out, q.n = map[string]*wire.Loans{}, 0
	return out
}

// SendWants has wants published for all other regions. Like SendGrants and SendReturns it
// may be called from anywhere and never waits: what finds the bus away, or too much queued,
// is dropped and counted, since whoever lacks units asks again. With Partition a want names
// it to lenders that never met it; Sealed, From and PartitionID's meaning are as in
// wire.Want.
func (m *Mesh) SendWants(wants ...wire.Want) {
	m.queueLoans(EveryRegion, len(wants), func(l *wire.Loans) { l.Wants = append(l.Wants, wants...) })
}

// SendGrants has grants published for the region that borrows.
func (m *Mesh) SendGrants(to string, grants ...wire.Grant) {
	m.queueLoans(to, len(grants), func(l *wire.Loans) { l.Grants = append(l.Grants, grants...) })
}

// SendReturns has what was given back published for the region that lent it.
func (m *Mesh) SendReturns(to string, returns ...wire.Return) {
	m.queueLoans(to, len(returns), func(l *wire.Loans) { l.Returns = append(l.Returns, returns...) })
}

func (m *Mesh) queueLoans(to string, n int, put func(*wire.Loans)) {
	if !m.loans.add(to, n, put) {
		count(m.metrics.loansDropped, n)
	}
}

// publishLoans publishes what is queued. Wants are for regions that are received from: one
// of another version is not.
func (m *Mesh) publishLoans() {
	out := m.loans.take()
	if m.peers.silenced(m.o.Now()) {
		return
	}
	for _, to := range slices.Sorted(maps.Keys(out)) {
		l := out[to]
		if to == EveryRegion && !m.peers.otherRegions(m.o.Now()) {
			continue
		}
		for i := range l.Wants {
			if w := &l.Wants[i]; w.Partition != nil {
				w.Sealed = m.secret.Load().Seal(w.PartitionID, w.Partition)
			}
		}
		for n := range slices.Max([]int{len(l.Wants), len(l.Grants), len(l.Returns)}) {
			if n%wire.MaxLoans == 0 {
				m.sendLoans(to, part(l.Wants, n), part(l.Grants, n), part(l.Returns, n))
			}
		}
	}
}

// part is what of a list goes into the message that begins with its n-th.
func part[T any](list []T, n int) []T {
	return list[min(n, len(list)):min(n+wire.MaxLoans, len(list))]
}

// sendLoans publishes one message, or two halves of what is too large.
func (m *Mesh) sendLoans(to string, wants []wire.Want, grants []wire.Grant, returns []wire.Return) {
	n := len(wants) + len(grants) + len(returns)
	l := wire.Loans{From: m.o.Self, Seq: m.outbox.seq + 1, Wants: wants, Grants: grants, Returns: returns}
	m.outbox.buf = wire.AppendLoans(m.outbox.buf[:0], &l)
	err := m.publish(kindLoan, SubjectLoan+m.o.Self.Region+"."+to, m.o.TimeUS(), nil)
	switch {
	case err == nil:
	case errors.Is(err, ErrTooLarge) && n > 1:
		w, g, r := (len(wants)+1)/2, (len(grants)+1)/2, len(returns)/2
		m.sendLoans(to, wants[:w], grants[:g], returns[:r])
		m.sendLoans(to, wants[w:], grants[g:], returns[r:])
	default:
		count(m.metrics.loansDropped, n)
	}
}

// onLoans hands on what another region sends about loans. What is late, or comes again,
// changes nothing: a later message has newer wants, and the rest is sent again.
func (m *Mesh) onLoans(region string, msg Message) error {
	to := strings.TrimPrefix(msg.Subject, SubjectLoan+region+".")
	if to != EveryRegion && to != m.o.Self.Region {
		return &refusal{string(wire.ReasonAuthor), fmt.Sprintf("a loan for region %.80q", to)}
	}
	l, err := wire.DecodeLoans(msg.Data)
	if err != nil {
		return err
	}
	now := m.o.Now()
	if ignored, err := m.check(region, l.From, l.Seq, nil, now); ignored || err != nil {
		return err
	}
	if directed := to != EveryRegion; directed && len(l.Wants) > 0 || !directed && len(l.Grants)+len(l.Returns) > 0 {
		return &refusal{string(wire.ReasonAuthor), "wants are for all regions, grants and returns for one"}
	}
	if err := m.unseal(l.Wants); err != nil {
		return err
	}
	if !m.peers.noteLoans(l.From, l.Seq) {
		return &refusal{reasonStale, fmt.Sprintf("loans from %s, boot %d, number %d, which is not newer than the last", l.From.Instance, l.From.Boot, l.Seq)}
	}
	m.received(kindLoan, region, len(msg.Data))
	if m.o.Loans == nil {
		return nil
	}
	if len(l.Wants) > 0 {
		m.o.Loans.Wanted(l.Wants)
	}
	if len(l.Grants) > 0 {
		m.o.Loans.Granted(l.Grants)
	}
	if len(l.Returns) > 0 {
		m.o.Loans.Returned(region, l.Returns)
	}
	return nil
}

// unseal reads what partitions the wants name.
func (m *Mesh) unseal(wants []wire.Want) (err error) {
	for i := range wants {
		w := &wants[i]
		if w.Sealed == nil {
			continue
		}
		if w.Partition, err = m.secret.Load().Unseal(w.PartitionID, w.Sealed); err != nil {
			return err
		}
		if m.o.Key.CounterID(w.Partition) != w.PartitionID {
			return &refusal{string(wire.ReasonRange), "a want names another partition than its id"}
		}
	}
	return nil
}

// noteLoans notes a message about loans, and reports whether it is the newest of a process
// that is received.
func (r *peerTable) noteLoans(from quota.Process, seq uint64) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	p := r.find(from)
	if p == nil || seq <= p.loanSeq {
		return false
	}
	p.loanSeq = seq
	return true
}

// otherRegions reports whether a process of another region is received.
func (r *peerTable) otherRegions(now time.Duration) bool {
	return slices.ContainsFunc(r.list(), func(p Peer) bool {
		return p.Region != r.self.Region && now-p.ReceivedAt <= SilentAfter
	})
}
