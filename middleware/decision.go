package middleware

import (
	"errors"
	"fmt"
	"net/http"
	"time"
)

// Check is one request to regiond: may this tenant spend this cost?
type Check struct {
	// Tenant is charged. Required.
	Tenant string `json:"tenant"`
	// Policy names a policy other than the tenant's own.
	Policy string `json:"policy,omitempty"`
	// Dimensions are what limits count by, {"user": "42"}. One that no policy uses
	// is refused as a typing error.
	Dimensions map[string]string `json:"dimensions,omitempty"`
	// Cost is 1…2⁴⁰ units; 0 means 1.
	Cost int64 `json:"cost,omitempty"`

	// IdempotencyKey makes a retry within a minute free. At most 64 characters;
	// never one that an end user chose.
	IdempotencyKey string `json:"-"`
	// TraceParent and TraceState are sent as the W3C header fields; where both are empty,
	// see Options.Propagate and TrustTraceparent.
	TraceParent string `json:"-"`
	TraceState  string `json:"-"`
}

// Decision is the answer to a Check.
type Decision struct {
	// Allowed is the answer; the rest explains it.
	Allowed bool
	// Away is set when regiond was unavailable. Allowed is then the choice of
	// Options.OnAway, Cause the error, and nothing else is set.
	Away  bool
	Cause error

	// ID names the decision in regiond's logs: the trace id of TraceParent, else a random one.
	ID string
	// Policy, Name and Limit are those of the limit nearest to exhaustion; on a
	// denial, of the one that takes longest to free.
	Policy string
	Name   string
	Limit  int64
	// Remaining is how many units of it are left.
	Remaining int64
	// RetryAfter is how long until this cost fits, to the millisecond; 0 when
	// allowed. Add jitter: callers that were denied together get nearly the same.
	RetryAfter time.Duration
	// ResetAfter is how long until all of the limit is free.
	ResetAfter time.Duration
	// Basis, Mode and Reason are as in regiond's answer; docs/failure.md lists them. Basis
	// is "shed" when regiond was too busy to decide: Limit and Remaining are then unknown.
	Basis  string
	Mode   string
	Reason string
	// WouldDeny is set when a policy under observation would have denied.
	WouldDeny bool

	// Header has the fields for the customer: RateLimit, RateLimit-Policy, the
	// older forms where topology.yaml chooses those, and on a denial Retry-After and
	// X-Regiond-Limit, the name of the limit that refused.
	Header http.Header
	// Status is regiond's: 200, 429, or 503 when a fail mode is closed or the check was shed.
	Status int

	reservation granted // of Reserve
}

// InvalidError is a check that regiond refuses for good: a bad tenant, an unknown
// policy, a missing token, a cost above the limit; or one that cannot be sent, as it
// is too large or has a field that net/http does not send. The program or its configuration is
// wrong; nothing was charged.
type InvalidError struct {
	// Status is regiond's: 400, 401, 403, 404, 422 and the like; 400, 413 or 431
	// where the check was not sent.
	Status int
	// Detail is the explanation, for a log.
	Detail string
}

func (e *InvalidError) Error() string {
	return fmt.Sprintf("the check is refused with %d: %s", e.Status, e.Detail)
}

// ErrAway is wrapped by Decision.Cause.
var ErrAway = errors.New("regiond is unavailable")
