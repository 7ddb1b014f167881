package sync

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/regiond/regiond/internal/base/signal"
	"github.com/regiond/regiond/quota"
	"github.com/regiond/regiond/sync/wire"
)

// maxLoansQueued bounds the wants, grants and returns that wait for the goroutine of Run.
const maxLoansQueued = 8 * wire.MaxLoans

// loanQueue holds what is to be published about loans.
type loanQueue struct {
	ready chan struct{} // has something in it while there is something

	mu  sync.Mutex
	out map[string]*wire.Loans // by recipient
	n   int
}

// add reports whether there was room.
func (q *loanQueue) add(to string, l *wire.Loans) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.n+l.Len() > maxLoansQueued {
		return false
	}
	o := q.out[to]
	if o == nil {
		o = &wire.Loans{}
		q.out[to] = o
	}
	o.Wants, o.Grants, o.Returns = append(o.Wants, l.Wants...), append(o.Grants, l.Grants...), append(o.Returns, l.Returns...)
	q.n += l.Len()
	signal.Send(q.ready)
	return true
}

func (q *loanQueue) take() map[string]*wire.Loans {
	q.mu.Lock()
	defer q.mu.Unlock()
	out := q.out
	q.out, q.n = map[string]*wire.Loans{}, 0
	return out
}

// SendLoans has wants published for all other regions, where to is "", or grants and returns
// for the region to. It may be called from anywhere and never waits: what finds the bus away,
// or too much queued, is dropped and counted, since whoever lacks units asks again. With
// Partition a want names it to lenders that never met it; Sealed, From and PartitionID's
// meaning are as in wire.Want. l is not kept.
func (m *Mesh) SendLoans(to string, l *wire.Loans) {
	if !m.loans.add(cmp.Or(to, EveryRegion), l) {
		m.metrics.loansDropped.Add(int64(l.Len()))
	}
}

// publishLoans publishes what is queued. Wants are for regions that are received from: one
// of another version is not.
func (m *Mesh) publishLoans() {
	out := m.loans.take()
	if m.silenced() {
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
		m.sendLoans(to, *l)
	}
}

// sendLoans publishes one message, or two halves of what is too large.
func (m *Mesh) sendLoans(to string, l wire.Loans) {
	w, g, r, err := len(l.Wants), len(l.Grants), len(l.Returns), ErrTooLarge
	if max(w, g, r) <= wire.MaxLoans {
		l.From, l.Seq = m.peers.Self, m.outbox.seq+1
		m.outbox.buf = wire.Append(m.outbox.buf[:0], &l)
		err = m.publish(kindLoan, SubjectLoan+m.peers.Self.Region+"."+to, m.o.TimeUS(), nil)
	}
	switch {
	case err == nil:
	case errors.Is(err, ErrTooLarge) && l.Len() > 1:
		w, g, r = (w+1)/2, (g+1)/2, r/2
		m.sendLoans(to, wire.Loans{Wants: l.Wants[:w], Grants: l.Grants[:g], Returns: l.Returns[:r]})
		m.sendLoans(to, wire.Loans{Wants: l.Wants[w:], Grants: l.Grants[g:], Returns: l.Returns[r:]})
	default:
		m.metrics.loansDropped.Add(int64(l.Len()))
	}
}

// onLoans hands on what another region sends about loans. What is late, or comes again,
// changes nothing: a later message has newer wants, and the rest is sent again.
func (m *Mesh) onLoans(region string, msg Message) error {
	to := strings.TrimPrefix(msg.Subject, SubjectLoan+region+".")
	if to != EveryRegion && to != m.peers.Self.Region {
		return &refusal{string(wire.ReasonAuthor), fmt.Sprintf("a loan for region %.80q", to)}
	}
	l, err := wire.Decode[*wire.Loans](msg.Data)
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
	if !m.peers.newest(l.From, l.Seq, func(p *peer) *uint64 { return &p.loanSeq }) {
		return &refusal{reasonStale, fmt.Sprintf("loans from %s, boot %d, number %d, which is not newer than the last", l.From.Instance, l.From.Boot, l.Seq)}
	}
	m.received(kindLoan, region, len(msg.Data))
	if m.receivers.Loans != nil {
		m.receivers.Loans(l)
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

// newest notes a message and reports whether it is the newest of its kind of a process that is
// received.
func (r *peerTable) newest(from quota.Process, seq uint64, kind func(*peer) *uint64) bool {
	r.Lock()
	defer r.Unlock()
	p := r.find(from)
	if p == nil || seq <= *kind(p) {
		return false
	}
	*kind(p) = seq
	return true
}

// otherRegions reports whether a process of another region is received.
func (r *peerTable) otherRegions(now time.Duration) bool {
	return slices.ContainsFunc(r.Received(now), func(p quota.Process) bool { return p.Region != r.Self.Region })
}
