package quota

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Request is one question: may this tenant spend this cost now?
type Request struct {
	Tenant string
	Policy string // "" means the tenant's own
	// TenantPolicy is what the gateway has verified of the tenant's own policy, "" for nothing. It wins over Policy where it names a
	// policy: as a value of PolicyValues, or itself where these are nil.
	TenantPolicy string
	PolicyValues map[string]string
	// PolicyDefault has Policy be what the configuration says of the tenant, over which TenantPolicy and an override win, and not a
	// policy that this request goes by whatever the tenant's is.
	PolicyDefault bool
	Dimensions    Dimensions
	// IgnoreUnknown ignores dimensions that no policy counts or asks by, which otherwise are an error.
	IgnoreUnknown bool
	Cost          int64 // 1…MaxUnits
	// IdempotencyKey makes a retried admission free for IdempotencyLife, "" for
	// none; at most MaxIdempotencyKey bytes of ValidID.
	IdempotencyKey string
	// Explain asks for the terms behind the decision.
	Explain bool
	// Usage asks for what is used of each limit, by region; of a peek.
	Usage bool
	// Reserve holds Cost, which may be 0 to look, for TTL; 0 is as long as the policy says.
	Reserve bool
	TTL     time.Duration
	// Charges are of a Domain, which Policy then names, and decided in one step: the caller has matched the limits.
	// nil means the limits of the policy that apply, with Dimensions and Cost, which otherwise are not used.
	Charges []Charge
	// Observe allows what the limits of Charges would deny, and charges what they would have admitted.
	Observe bool
}

// Charge is a cost under one limit. A limit may be in several of a request; those with equal values add up.
type Charge struct {
	Limit      *Limit
	Dimensions Dimensions
	Cost       int64 // 1…MaxUnits
}

// Domain is a policy of any number of limits, of which each request names its own: Request.Limits.
type Domain struct {
	Policy *Policy
	// Tenant is whose the requests are that belong to no other. It is listed.
	Tenant string
}

// Ask is what a Question is about. The zero value is AskCheck.
type Ask uint8

const (
	// AskCheck charges the cost if every limit has room for it, else nothing.
	AskCheck Ask = iota
	// AskPeek is AskCheck that charges nothing.
	AskPeek
	// AskReport charges the cost whatever is left.
	AskReport
	// AskRefund takes back the newest units that were charged, up to the cost. All limits of the request are Refundable.
	AskRefund
)

// Question is a request, and what to do about it.
type Question struct {
	Request
	Ask Ask
}

// MaxIdempotencyKey is the largest number of bytes in an Idempotency-Key.
const MaxIdempotencyKey = 64

// Validate returns every error of the request that needs no configuration to
// see. Pointers are those of the JSON body.
func (r *Request) Validate() []FieldError {
	var ms FieldErrors
	ms.Check("/tenant", ValidID(r.Tenant))
	if r.Policy != "" {
		ms.Check("/policy", ValidName(r.Policy))
	}
	switch {
	case r.Reserve:
		ms.dimensions(r.Dimensions)
		ms.When(r.Cost < 0 || r.Cost > MaxUnits, "/amount", "must be a whole number between 0 and %d", MaxUnits)
		ms.When(r.TTL < 0, "/ttl_ms", "must be at least 1")
	case r.Charges == nil:
		ms.charge(r.Dimensions, r.Cost)
	}
	for i := range r.Charges {
		ms.charge(r.Charges[i].Dimensions, r.Charges[i].Cost)
	}
	if k := r.IdempotencyKey; k != "" {
		if err := ValidID(k); err != nil {
			ms.Add("", "Idempotency-Key %v", err)
		} else if len(k) > MaxIdempotencyKey {
			ms.Add("", "Idempotency-Key must be at most %d characters, has %d", MaxIdempotencyKey, len(k))
		}
	}
	return ms
}

func (ms *FieldErrors) charge(dims Dimensions, cost int64) {
	ms.dimensions(dims)
	ms.When(cost < 1 || cost > MaxUnits, "/cost", "must be a whole number between 1 and %d", MaxUnits)
}

func (ms *FieldErrors) dimensions(dims Dimensions) {
	for i, d := range dims {
		if err := ValidName(d.Name); err != nil {
			ms.Add("/dimensions", "%v", err)
			continue
		}
		if i > 0 && dims[i-1].Name == d.Name {
			ms.Add("/dimensions/"+d.Name, "is duplicated")
		}
		if err := ValidID(d.Value); err != nil {
			ms.Add("/dimensions/"+d.Name, "%v", err)
		}
	}
}

// MaxID is the largest number of bytes in a tenant id or a dimension value.
const MaxID = 256

// MaxName is the largest number of bytes in the name of a policy, a limit, a
// dimension or a route.
const MaxName = 63

// ValidID accepts 1–256 bytes of printable ASCII without space or braces, so
// that "auth0|x" and "a+b@c" work, an id can never end a Redis hash tag, and
// nothing that reaches a log or a header can break a line.
func ValidID(id string) error {
	if id == "" {
		return errors.New("must not be empty")
	}
	if len(id) > MaxID {
		return fmt.Errorf("must be at most %d bytes, has %d", MaxID, len(id))
	}
	for i := range len(id) {
		if c := id[i]; c <= ' ' || c > '~' || c == '{' || c == '}' {
			return fmt.Errorf("must be printable ASCII without space or braces, byte %d is %q", i, c)
		}
	}
	return nil
}

// ValidName accepts [a-z0-9][a-z0-9_-]{0,62}: what names in topology.yaml look like.
func ValidName(name string) error {
	if name == "" || len(name) > MaxName {
		return fmt.Errorf("a name has 1 to %d characters, %q has %d", MaxName, Clip(name), len(name))
	}
	for i := range len(name) {
		c := name[i]
		letter := c >= 'a' && c <= 'z' || c >= '0' && c <= '9'
		if !letter && (i == 0 || c != '_' && c != '-') {
			return fmt.Errorf("a name is of a-z, 0-9, _ and - and begins with a letter or digit, %q does not", Clip(name))
		}
	}
	return nil
}

// Dimension is one property of a request that limits may count by: user, ip, route.
type Dimension struct {
	Name  string // a valid name
	Value string // a valid id
}

// Dimensions are those of one request, sorted by name and unique (see Sort).
type Dimensions []Dimension

// Sort orders the dimensions by name, as every function here expects them, and
// reports the first duplicated name.
func (ds Dimensions) Sort() (twice string, ok bool) {
	slices.SortFunc(ds, func(a, b Dimension) int { return strings.Compare(a.Name, b.Name) })
	for i := 1; i < len(ds); i++ {
		if ds[i].Name == ds[i-1].Name {
			return ds[i].Name, false
		}
	}
	return "", true
}

// Value returns the value of a dimension and whether the request has it.
func (ds Dimensions) Value(name string) (string, bool) {
	for i := range ds {
		if ds[i].Name == name {
			return ds[i].Value, true
		}
	}
	return "", false
}

// Timed is a context with a deadline that a limiter reads, which has one timer for all requests. Done is that of the context
// within: one of the standard library has a timer of its own, and five allocations.
type Timed struct {
	context.Context //nolint:containedctx // it is one
	at              time.Time
}

// Within returns ctx with a deadline, its own if that is earlier.
func Within(ctx context.Context, at time.Time) Timed {
	if earlier, ok := ctx.Deadline(); ok && earlier.Before(at) {
		at = earlier
	}
	return Timed{ctx, at}
}

// Deadline implements context.Context.
func (t *Timed) Deadline() (time.Time, bool) { return t.at, true }

// callersDeadline marks the context of a caller that waits no longer than its deadline.
type callersDeadline struct{}

// WithCallersDeadline returns ctx with a deadline after which nobody waits for the decision, so that there is one by
// then, whatever has become of the call to Redis. With any other deadline what was sent is waited for until Redis has
// answered or is found dead, which may be a moment later.
func WithCallersDeadline(ctx context.Context, at time.Time) (context.Context, context.CancelFunc) {
	return context.WithDeadline(context.WithValue(ctx, callersDeadline{}, true), at)
}

// HasCallersDeadline reports whether ctx, or one that it comes from, is of WithCallersDeadline.
func HasCallersDeadline(ctx context.Context) bool { return ctx.Value(callersDeadline{}) != nil }
