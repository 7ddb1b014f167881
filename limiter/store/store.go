// Package store is what a Limiter asks and what a store answers: Call, KeyPlan and Verdict,
// and the Store that decides. Redis (redisstore) and memory (memstore) keep the same
// contract, and limitertest holds them to it.
//
// A KeyPlan groups the limits of a request by the key that each is counted under, and names
// the keys. Nothing in this package is kept, sent or waited for.
package store

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/regiond/regiond/quota"
	"github.com/regiond/regiond/quota/loan"
)

// Op is what a Call does.
type Op byte

const (
	// OpCheck charges the cost if every limit has room for it, else nothing.
	OpCheck Op = 'c'
	// OpPeek answers what a check would get and writes nothing.
	OpPeek Op = 'p'
	// OpReport charges whatever is left, past the limits if need be.
	OpReport Op = 'r'
	// OpLoans runs Call.Loans and charges nothing. The plan has one limit, which is bounded.
	OpLoans Op = 'l'
	// OpReserve charges 1 to keys that count requests and holds the cost under keys that take holds, 1 under those of
	// kind 'c', if every limit has room, else nothing. A cost of 0 answers what 1 would get and writes nothing.
	OpReserve Op = 'h'
	// OpSettle removes the holds of a reservation and charges the cost, which may be 0, to keys that count tokens, past the
	// limits if need be.
	OpSettle Op = 's'
	// OpExtend has the holds of a reservation end Hold.TTLUS from now.
	OpExtend Op = 'e'
	// OpRefund takes the newest units out from under each key, up to the cost. A log has the units of its largest limit at
	// most: what reports charged beyond is not there to be taken back. No limit of the plan is global.
	OpRefund Op = 'f'
)

// OfReservation reports whether a Call with the operation has a Hold.
func (o Op) OfReservation() bool { return o == OpReserve || o == OpSettle || o == OpExtend }

// Call is one question to a Store.
type Call struct {
	Plan *KeyPlan
	Keys []string // KeyPlan.AppendKeys of the request
	// Counters has the key of the usage counter of each global limit, in the plan's
	// order: KeyPlan.AppendCounters of the request. A memstore.Store that is given none keeps none.
	Counters []quota.CounterKey
	Op       Op
	Cost     int64
	// Costs has one entry for each of Keys, where they differ or keys are equal; Cost is then the largest. Equal keys are
	// charged one after the other.
	Costs []int64
	// Ceilings has one entry for each limit of the plan, in the plan's order;
	// those of regional limits are their capacity.
	Ceilings []int64
	// Known has one entry for each of Counters: what the limit's ceiling rests on
	// (quota.Ceiling). With a store that does not hold it any more the outcome is Lost. nil
	// rests on nothing.
	Known []quota.Counter
	// Periods has one entry for each global limit of the plan with a calendar, in the plan's order: the number of the period that its
	// ceiling is for, 0 for any. If the store's TIME lies in another, which only it can know, the outcome is Elsewhen. nil is 0 for all.
	Periods []int64
	// Bounds has one entry for each bounded limit of the plan, in the plan's order: what holds
	// is the lower of the ceiling and of what the bound leaves, see LimitVerdict.Bounded. nil means that no
	// bound holds. With bounds there are Counters, which name the loans.
	Bounds []quota.Bound
	Loans  []LoanOp // of OpLoans
	Hold   Hold     // of OpReserve, OpSettle and OpExtend
	// Record is the key that remembers an admission for an Idempotency-Key, ""
	// for none, and Print distinguishes its request from any other (no spaces). Policy is the name of the policy that decides, which the
	// record has too: another one may when it is replayed.
	Record, Print, Policy string
	// Answers is the plan that the answer names; nil is Plan.
	Answers *KeyPlan
}

// Hold is the reservation that a call is about. The store keeps a record of it beside its holds: it makes a settle
// idempotent.
type Hold struct {
	ID     int64 // 1…MaxHoldID, chosen at random: where a record has it, OpReserve is Taken
	TTLUS  int64 // of OpReserve and OpExtend
	KeepUS int64 // for how long the record is kept beyond the end of the holds; that of a settle so long at least, and until GoneUS
	// GoneUS is of OpSettle: from this TIME on a record that is missing was forgotten, and before it was lost.
	GoneUS int64
}

// MaxHoldID is the largest Hold.ID: Lua's numbers are exact up to it.
const MaxHoldID = 1<<53 - 1

// Share is what the call takes under one of Keys, if that fits: how many units it charges there and how many it holds.
func (c *Call) Share(key int) (charged, held int64) {
	k := &c.Plan.Keys[key]
	switch {
	case c.Op == OpRefund:
		return 0, 0
	case c.Costs != nil:
		return c.Costs[key], 0
	case c.Op == OpReserve && k.Kind == 'c':
		return 0, 1
	case c.Op == OpReserve && k.Holds:
		return 0, max(1, c.Cost)
	case c.Op == OpReserve:
		return 1, 0
	case c.Op == OpSettle && (k.Kind == 'c' || !k.Holds):
		return 0, 0
	}
	return c.Cost, 0
}

// Refund is how many units OpRefund takes back under one of Keys, if there are so many.
func (c *Call) Refund(key int) int64 {
	if c.Costs != nil {
		return c.Costs[key]
	}
	return c.Cost
}

// Outcome of a call in a store. 0 is none: nothing was decided.
const (
	Admitted = 'a'
	Denied   = 'd'
	Replayed = 'm' // an earlier admission, given again
	Reused   = 'x' // the idempotency key came with another request before
	Lost     = 'l' // the store lost what a ceiling rests on; nothing was charged
	Elsewhen = 'w' // a ceiling is for another period than counts; nothing was charged
	Settled  = 's' // of OpSettle; Replayed has the Verdict.Hold of the first
	Gone     = 'g' // of OpSettle: too late, nothing was charged; of OpExtend: the reservation is not open
	Taken    = 't' // of OpReserve: another reservation has the ID; nothing was charged
)

// Verdict is a store's answer to a Call.
type Verdict struct {
	Outcome byte  // 0 with Err
	StoreUS int64 // the store's clock, µs since the epoch
	// Limits has an entry for each limit of the plan. An OpExtend that is Admitted sets counters and gauges of limits that
	// take holds, and nothing else.
	Limits []LimitVerdict
	Loans  *Loans      // of OpLoans
	Hold   HoldVerdict // of OpReserve, OpSettle and OpExtend
	// Earlier is the admission that is Replayed.
	Earlier *Admission
	// Err is why this call alone could not be decided; nothing of it was charged.
	Err error
}

// Undecided reports whether the call was not carried out, since its ceilings are not those of the store: Lost or Elsewhen. Only counters
// are set, and the call is to be made again with ceilings that follow from them.
func (v *Verdict) Undecided() bool { return v.Outcome == Lost || v.Outcome == Elsewhen }

// HoldVerdict is what a Verdict says of a reservation.
type HoldVerdict struct {
	ID        int64 // of OpReserve; that of the first where it is Replayed
	ExpiresUS int64 // the store's TIME at which its holds end
	Held      int64 // the amount that it held, 0 where the store has lost it
	Charged   int64 // of OpSettle: the units used
	Released  bool  // of OpSettle: its holds were open until then
	TooMany   bool  // of OpReserve that is Denied: a key has quota.MaxHolds holds
}

// Overrun is how many of the units that were charged had not been held.
func (h *HoldVerdict) Overrun() int64 { return max(0, h.Charged-h.Held) }

// Blank returns n empty verdicts in the memory of verdicts.
func Blank(verdicts []Verdict, n int) []Verdict {
	verdicts = slices.Grow(verdicts[:0], n)[:n]
	Fail(verdicts, nil)
	return verdicts
}

// Fail gives all verdicts an error.
func Fail(verdicts []Verdict, err error) {
	for i := range verdicts {
		verdicts[i] = Verdict{Limits: verdicts[i].Limits[:0], Err: err}
	}
}

// LimitVerdict is one limit of a Verdict, in the plan's order.
type LimitVerdict struct {
	Remaining int64
	WaitUS    int64 // until the cost fits; 0 now, −1 never under this ceiling
	ResetUS   int64 // until nothing is used or held
	Held      int64 // units that open reservations hold, after the call
	// Over is how many units of a global limit, counted up to L, are used beyond its
	// ceiling when it denies: peers may have used what was free before.
	Over int64
	// Bounded is how many units the region may hold under the bound of the limit, 0…B, without
	// those that are to be returned: what it has of the bound, less what it lent, more what it
	// borrowed.
	Bounded int64
	// Counter is what the store has counted of a global limit, zero for nothing. Of one with a calendar it is that of the period
	// that counts, whose number and end it has even if it has no generation; of what is Lost, that of the newest. In
	// an admission that is replayed it is as old as that. It alone is set of what is Undecided.
	Counter quota.Counter
	// Gauge is what peers have to know of the holds under a global limit, zero where an admission is replayed. It is beside the
	// counter, and changes with it at once.
	Gauge quota.Gauge
}

// Admission is an admission with an Idempotency-Key, as it was answered.
type Admission struct {
	Record, Print, Policy string
	Key                   string // one of the call's
	US                    int64  // when, by the clock of the store that keeps it
	Plan                  *KeyPlan
	Ceilings              []int64
	Limits                []LimitVerdict
	Hold                  HoldVerdict // of OpReserve
	// Own is whether the process decided by itself and no other store knows it yet.
	Own bool
}

// LoanOp is a transition of a loan.Book; it is one of several that are made with the log of the partition.
type LoanOp struct {
	Kind LoanKind
	// Units is how many to lend or to return at most, to leave unused, or were returned so far.
	Units   int64
	Until   int64        // of LoanRecall, µs of the store's clock
	Peer    string       // the lender of what is returned, the borrower of what was
	ID      loan.ID      // of what is or was returned
	Request loan.Request // that LoanLend answers
	Grant   loan.Grant   // that is accepted; From is the lender
}

// LoanKind says which method of loan.Book a LoanOp is.
type LoanKind uint8

// The kinds of operation.
const (
	LoanLend     LoanKind = iota // Lend
	LoanAccept                   // Accept
	LoanReturn                   // Return
	LoanReturned                 // Returned
	LoanRecall                   // SetRecall
)

// Loans is what the store answers to OpLoans.
type Loans struct {
	Used int64 // in the window (StoreUS−W, StoreUS], or in the period that counts, and held
	// Period is the one that counts of a limit with a calendar, with the end that it has in the store; without Units.
	Period quota.PeriodUnits
	State  loan.State // after all operations
	// Results has an entry for each operation.
	Results []LoanResult
}

// LoanResult is what came of a LoanOp.
type LoanResult struct {
	// Grant is what LoanLend granted, without From; zero for nothing.
	Grant loan.Grant
	// Back is how much of the loan LoanReturn has returned so far.
	Back int64
	// Changed is whether LoanAccept changed anything.
	Changed bool
}

// Store keeps usage and decides on it. Implementations are safe for concurrent use.
type Store interface {
	// Decide runs the calls one after the other, a later one seeing the charges
	// of an earlier one, and fills verdicts, which has the same length. Afterwards
	// calls, unless an Err is Ambiguous, and what verdicts hold are the caller's, who
	// uses them again.
	Decide(ctx context.Context, calls []Call, verdicts []Verdict)
	// ResetAll deletes everything of a tenant but its loans, which are its peers', and usage counters: what was published to peers
	// ages out. Those of generations up to upTo go too, for when peers forget them as well.
	ResetAll(ctx context.Context, tenant string, upTo int64) error
}

// Lister is a Store that says which keys it has.
type Lister interface {
	// Keys returns some keys from a cursor on, "" for the first, and where to go on, "" at the end. A key that is there all the
	// while is returned, maybe more than once. ErrCursor is the error for a cursor that no call has returned, or before the keys
	// moved to another server.
	Keys(ctx context.Context, cursor string) (keys []string, next string, err error)
}

// ErrCursor is of Lister.
var ErrCursor = errors.New("is no cursor of this store")

// Rememberer is a Store that keeps admissions for several processes.
type Rememberer interface {
	// Remember keeps admissions that another store has decided, at ago µs each, where it has none
	// under their keys. It calls known with the place of each that it has now (kept) or drops; the rest it
	// cannot write now.
	Remember(ctx context.Context, all []*Admission, ago func(*Admission) int64, known func(i int, kept bool))
}

// Error is why a store did not answer.
type Error struct {
	Reason quota.Reason
	// Ambiguous is whether the calls may have been charged all the same: they
	// were sent and the reply was lost.
	Ambiguous bool
	Err       error
}

// Error implements error.
func (e *Error) Error() string {
	if e.Ambiguous {
		return fmt.Sprintf("%s, outcome unknown: %v", e.Reason, e.Err)
	}
	return fmt.Sprintf("%s: %v", e.Reason, e.Err)
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// ErrPartition marks a Verdict.Err that is about one partition's data, such as a
// key of another type: the store is well and other partitions are not touched.
var ErrPartition = errors.New("partition unreadable")
