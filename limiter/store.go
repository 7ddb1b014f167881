package limiter

import (
	"context"
	"errors"
	"fmt"

	"github.com/regiond/regiond/quota"
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
)

// Call is one question to a Store.
type Call struct {
	Plan *KeyPlan
	Keys []string // KeyPlan.AppendKeys of the request
	// Counters has the key of the usage counter of each global limit, in the plan's
	// order: KeyPlan.AppendCounters of the request. A MemoryStore that is given none keeps none.
	Counters []quota.CounterKey
	Op       Op
	Cost     int64
	// Ceilings has one entry for each limit of the plan, in the plan's order;
	// those of regional limits are their capacity.
	Ceilings []int64
	// Record is the key that remembers an admission for an Idempotency-Key, ""
	// for none, and Print distinguishes its request from any other (no spaces).
	Record, Print string
}

// slotKey is a key of the call. All of them enclose the same tenant in braces, so
// they lie in one slot of a Redis Cluster.
func (c *Call) slotKey() string { return c.Keys[0] }

// Outcome of a call in a store.
const (
	admitted = 'a'
	denied   = 'd'
	replayed = 'm' // an earlier admission, given again
	reused   = 'x' // the idempotency key came with another request before
)

// Verdict is a store's answer to a Call.
type Verdict struct {
	Outcome byte
	StoreUS int64 // the store's clock, µs since the epoch
	Limits  []LimitVerdict
	// Err is why this call alone could not be decided; nothing of it was charged.
	Err error
}

// LimitVerdict is one limit of a Verdict, in the plan's order.
type LimitVerdict struct {
	Remaining int64
	WaitUS    int64 // until the cost fits; 0 now, −1 never under this ceiling
	ResetUS   int64 // until nothing is used
	// Over is how many units of a global limit, counted up to L, are used beyond its
	// ceiling when it denies: peers may have used what was free before.
	Over int64
	// Counter is what the store has counted of a global limit, zero for nothing. In
	// an admission that is replayed it is as old as that.
	Counter quota.Counter
}

// Store keeps usage and decides on it. Implementations are safe for concurrent use.
type Store interface {
	// Decide runs the calls one after the other, a later one seeing the charges
	// of an earlier one, and fills verdicts, which has the same length. An error
	// is about all of them: *StoreError. Afterwards calls, unless there was an
	// error, and what verdicts hold are the caller's, who uses them again.
	Decide(ctx context.Context, calls []Call, verdicts []Verdict) error
	// Reset deletes everything of a tenant but its usage counters: what was published
	// to peers ages out.
	Reset(ctx context.Context, tenant string) error
}

// StoreError is why a store did not answer.
type StoreError struct {
	Reason quota.Reason
	// Ambiguous is whether the calls may have been charged all the same: they
	// were sent and the reply was lost.
	Ambiguous bool
	Err       error
	moving    bool // the slot is on its way; the server is well
}

// Error implements error.
func (e *StoreError) Error() string {
	if e.Ambiguous {
		return fmt.Sprintf("%s, outcome unknown: %v", e.Reason, e.Err)
	}
	return fmt.Sprintf("%s: %v", e.Reason, e.Err)
}

// Unwrap returns the cause.
func (e *StoreError) Unwrap() error { return e.Err }

// ErrPartition marks a Verdict.Err that is about one partition's data, such as a
// key of another type: the store is well and other partitions are not touched.
var ErrPartition = errors.New("partition unreadable")
