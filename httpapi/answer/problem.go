package answer

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"time"

	"github.com/regiond/regiond/quota"
)

// Kind is a type of problem (RFC 9457). The table below has its URI, title and
// usual status.
type Kind uint8

// The kinds.
const (
	Invalid Kind = iota
	Unauthorized
	Forbidden
	Identity
	NoForwardAuth
	NotFound
	Method
	Misdirected
	TooLarge
	MediaType
	Cost
	Reuse
	NoReservation
	Over
	NoHolds
	Alone
	Override
	NoOverride
	Precondition
	Edits
	Quota
	Reduced
	Internal
)

const (
	ownProblems   = "urn:regiond:problem:"
	draftProblems = "https://iana.org/assignments/http-problem-types#"
)

var problems = [...]Type{
	Invalid:       {ownProblems + "invalid-request", http.StatusBadRequest, "The request breaks a rule"},
	Unauthorized:  {ownProblems + "unauthorized", http.StatusUnauthorized, "The caller is not known"},
	Forbidden:     {ownProblems + "forbidden", http.StatusForbidden, "The caller may not do this"},
	Identity:      {ownProblems + "identity", http.StatusForbidden, "The request cannot be attributed"},
	NoForwardAuth: {ownProblems + "forward-auth-not-configured", http.StatusForbidden, "Forward-auth is not configured"},
	NotFound:      {ownProblems + "not-found", http.StatusNotFound, "There is no such call"},
	Method:        {ownProblems + "method-not-allowed", http.StatusMethodNotAllowed, "The call has another method"},
	Misdirected:   {ownProblems + "misdirected", http.StatusMisdirectedRequest, "The host is not this listener"},
	TooLarge:      {ownProblems + "body-too-large", http.StatusRequestEntityTooLarge, "The body is too large"},
	MediaType:     {ownProblems + "unsupported-media-type", http.StatusUnsupportedMediaType, "The body is not JSON"},
	Cost:          {ownProblems + "cost-exceeds-limit", http.StatusUnprocessableEntity, "The cost is above the limit"},
	Reuse:         {ownProblems + "idempotency-key-reuse", http.StatusUnprocessableEntity, "The Idempotency-Key came with another request"},
	NoReservation: {ownProblems + "reservation-unknown", http.StatusNotFound, "There is no such reservation"},
	Over:          {ownProblems + "reservation-over", http.StatusGone, "The reservation is over"},
	NoHolds:       {ownProblems + "no-reservations", http.StatusUnprocessableEntity, "The policy takes no reservations"},
	Alone:         {ownProblems + "no-other-region", http.StatusConflict, "No other region can be asked"},
	Override:      {ownProblems + "override-refused", http.StatusUnprocessableEntity, "The override cannot be set"},
	NoOverride:    {ownProblems + "no-override", http.StatusNotFound, "The tenant has no override"},
	Precondition:  {ownProblems + "precondition-failed", http.StatusPreconditionFailed, "The override is another one"},
	Edits:         {ownProblems + "too-many-edits", http.StatusTooManyRequests, "Too many edits"},
	Quota:         {draftProblems + "quota-exceeded", http.StatusTooManyRequests, "The quota is used up"},
	Reduced:       {draftProblems + "temporary-reduced-capacity", http.StatusServiceUnavailable, "Capacity is reduced for now"},
	Internal:      {ownProblems + "internal", http.StatusInternalServerError, "Internal error"},
}

// Type is what identifies a kind of problem in an answer.
type Type struct {
	URI    string
	Status int // the usual one
	Title  string
}

// Types are those of all kinds, in their order.
func Types() []Type {
	return slices.Clone(problems[:])
}

// Problem is one refusal.
type Problem struct {
	Kind   Kind
	Status int // 0 means the kind's own
	Detail string
	Errs   []quota.FieldError
}

// Code is the status of the answer.
func (p *Problem) Code() int { return cmp.Or(p.Status, problems[p.Kind].Status) }

// Broken is the problem of a request that breaks rules.
func Broken(fault quota.Fault, errs ...quota.FieldError) Problem {
	p := Problem{Kind: Invalid, Errs: errs, Detail: "Nothing was charged; see errors for each mistake."}
	switch fault {
	case quota.FaultCost:
		p.Kind = Cost
		p.Detail = "A cost above a limit can never be admitted, so it is no use to retry; nothing was charged."
	case quota.FaultReuse:
		p.Kind = Reuse
		p.Detail = "An Idempotency-Key belongs to one request; use a new key for another one. Nothing was charged."
	case quota.FaultUnknown:
		p.Kind = NoReservation
	case quota.FaultOver:
		p.Kind = Over
	case quota.FaultNoHolds:
		p.Kind = NoHolds
	case quota.FaultInput:
	}
	return p
}

// Denial is the problem of a denied decision. Its detail is for the customer, without ceilings or peers.
func Denial(d *quota.Decision) Problem {
	head := d.Headline()
	switch {
	case d.Basis == quota.BasisShed:
		return Problem{Kind: Reduced, Detail: "More requests arrived than could be decided in time, and this one was turned away. " +
			"Nothing was charged; send it again after a second or more."}
	case d.TurnedAway():
		return Problem{Kind: Reduced, Detail: "Usage cannot be counted at the moment, and this policy then refuses. Retry later."}
	case head < 0:
		return Problem{Kind: Quota}
	}
	s := &d.Limits[head]
	wait := ceil(s.RetryAfter, time.Millisecond)
	switch {
	case d.Reason == quota.ReasonSuspended:
		return Problem{Kind: Quota, Detail: fmt.Sprintf("Limit %s of policy %s is suspended for this tenant, and admits nothing until that is changed.",
			s.Limit.Name, d.Policy)}
	case d.Reason == quota.ReasonTooManyHolds:
		return Problem{Kind: Quota, Detail: fmt.Sprintf("Policy %s has %d open reservations here, and no more are kept; one ends in %d ms.",
			d.Policy, quota.MaxHolds, wait)}
	case s.Limit.Algorithm == quota.Concurrent:
		return Problem{Kind: Quota, Detail: fmt.Sprintf("Limit %s of policy %s is %d at once; one of them ends in %d ms, or when it is settled.",
			s.Limit.Name, d.Policy, s.Limit.Units, wait)}
	}
	return Problem{Kind: Quota, Detail: fmt.Sprintf("Limit %s of policy %s is %d per %s; this request needs %d and fits in %d ms.",
		s.Limit.Name, d.Policy, s.Limit.Units, s.Limit.Per(), d.CostOf(s.Limit), wait)}
}

// Bounds of an answer to a request that breaks rules.
const (
	// MaxBroken bounds the answer, in bytes.
	MaxBroken = 8 << 10
	// MaxBrief is what Brief takes at most for a check of a batch, with what surrounds it.
	MaxBrief = 65
	// maxErrors bounds the errors of one problem, in bytes.
	maxErrors = 5 << 10
	// maxPointer and maxDetail bound each of its errors, before they are escaped.
	maxPointer, maxDetail = 160, 320
)

// Body is the answer with a problem alone.
func (p *Problem) Body() *Body { return new(Body).With(p) }

// With adds a problem to an answer.
func (b *Body) With(p *Problem) *Body {
	b.Type, b.Title, b.Status, b.Detail = problems[p.Kind].URI, problems[p.Kind].Title, p.Code(), p.Detail
	size := 0
	for i, e := range p.Errs {
		text := errorText(e)
		if size += len(text) + 1; i > 0 && size > maxErrors {
			b.Errors = append(b.Errors, errorText(quota.FieldError{Detail: "and more errors"}))
			break
		}
		b.Errors = append(b.Errors, text)
	}
	return b
}

// errorText is an error as it is sent. A pointer is a URI fragment (RFC 6901, 6).
func errorText(e quota.FieldError) json.RawMessage {
	return JSON(struct {
		Pointer string `json:"pointer"`
		Detail  string `json:"detail"`
	}{"#" + (&url.URL{Fragment: quota.ClipTo(e.Pointer, maxPointer)}).EscapedFragment(), quota.ClipTo(e.Detail, maxDetail)})
}

// Brief is what is left of a problem where there is no room for more.
func (p *Problem) Brief() *Body { return &Body{Type: problems[p.Kind].URI, Status: p.Code()} }
