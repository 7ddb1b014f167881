package middleware

import (
	"errors"
	"fmt"
	"net/http"
	"time"
)

// Check is one question: may this tenant spend this much?
type Check struct {
	// Tenant is who is charged. Required.
	Tenant string `json:"tenant"`
	// Policy names a policy other than the tenant's own.
	Policy string `json:"policy,omitempty"`
	// Dimensions are what limits count by, {"user": "42"}. One that no policy uses
	// is refused as a typing error.
	Dimensions map[string]string `json:"dimensions,omitempty"`
	// Cost is 1…2⁴⁰ units; 0 means 1.
	Cost int64 `json:"cost,omitempty"`

	// IdempotencyKey makes asking again within a minute cost nothing. At most 64
	// characters; never one that an end user chose.
	IdempotencyKey string `json:"-"`
	// TraceParent and TraceState are passed on as the W3C header fields. Handler
	// fills them from its request when both are empty.
	TraceParent string `json:"-"`
	TraceState  string `json:"-"`
}

// Decision is the answer to a Check.
type Decision struct {
	// Allowed is the answer; the rest explains it.
	Allowed bool
	// Away says that regiond could not be asked: Allowed is then what
	// Options.OnAway chose, Cause says why, and nothing else is set.
	Away  bool
	Cause error

	// Policy, Name and Limit are those of the limit nearest to exhaustion, or of the
	// one that takes longest to free.
	Policy string
	Name   string
	Limit  int64
	// Remaining is how many units are left of it.
	Remaining int64
	// RetryAfter is how long until this cost fits, to the millisecond; 0 when allowed.
	// Everybody who was denied at once is told nearly the same: add some chance.
	RetryAfter time.Duration
	// ResetAfter is how long until all of the limit is free.
	ResetAfter time.Duration
	// Basis, Mode and Reason say what the decision rests on; README.md lists them.
	Basis  string
	Mode   string
	Reason string
	// WouldDeny is true when a policy that only observes would have refused.
	WouldDeny bool

	// Header are the fields meant for the customer: RateLimit, RateLimit-Policy, the
	// older forms where topology.yaml chooses those, and Retry-After on a denial.
	Header http.Header
	// Status is regiond's: 200, 429, or 503 when a fail mode is closed.
	Status int
}

// InvalidError is a question that regiond does not answer, and never will: a bad
// tenant, an unknown policy, a missing token, a cost above the limit. It is a
// mistake of the program or of its configuration; nothing was charged.
type InvalidError struct {
	// Status is regiond's: 400, 401, 403, 404, 422 and the like.
	Status int
	// Detail is what regiond says about it, for a log.
	Detail string
}

func (e *InvalidError) Error() string {
	return fmt.Sprintf("regiond refuses the question with %d: %s", e.Status, e.Detail)
}

// ErrAway is wrapped by Decision.Cause.
var ErrAway = errors.New("regiond cannot be asked")
