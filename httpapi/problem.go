package httpapi

import (
	"cmp"
	"net/http"
	"net/url"
	"strconv"

	"github.com/regiond/regiond/quota"
)

// kind is a type of problem (RFC 9457). The table below has its URI, title and
// usual status.
type kind uint8

const (
	kindInvalid kind = iota
	kindUnauthorized
	kindForbidden
	kindIdentity
	kindNoForwardAuth
	kindNotFound
	kindMethod
	kindMisdirected
	kindTooLarge
	kindMediaType
	kindCost
	kindReuse
	kindAlone
	kindQuota
	kindReduced
	kindInternal
)

const (
	ownProblems   = "urn:regiond:problem:"
	draftProblems = "https://iana.org/assignments/http-problem-types#"
)

var problems = [...]struct {
	uri    string
	status int
	title  string
}{
	kindInvalid:       {ownProblems + "invalid-request", http.StatusBadRequest, "The request breaks a rule"},
	kindUnauthorized:  {ownProblems + "unauthorized", http.StatusUnauthorized, "The caller is not known"},
	kindForbidden:     {ownProblems + "forbidden", http.StatusForbidden, "The caller may not do this"},
	kindIdentity:      {ownProblems + "identity", http.StatusForbidden, "The request cannot be attributed"},
	kindNoForwardAuth: {ownProblems + "forward-auth-not-configured", http.StatusForbidden, "Forward-auth is not configured"},
	kindNotFound:      {ownProblems + "not-found", http.StatusNotFound, "There is no such call"},
	kindMethod:        {ownProblems + "method-not-allowed", http.StatusMethodNotAllowed, "The call has another method"},
	kindMisdirected:   {ownProblems + "misdirected", http.StatusMisdirectedRequest, "The host is not this listener"},
	kindTooLarge:      {ownProblems + "body-too-large", http.StatusRequestEntityTooLarge, "The body is too large"},
	kindMediaType:     {ownProblems + "unsupported-media-type", http.StatusUnsupportedMediaType, "The body is not JSON"},
	kindCost:          {ownProblems + "cost-exceeds-limit", http.StatusUnprocessableEntity, "The cost is above the limit"},
	kindReuse:         {ownProblems + "idempotency-key-reuse", http.StatusUnprocessableEntity, "The Idempotency-Key came with another request"},
	kindAlone:         {ownProblems + "no-other-region", http.StatusConflict, "No other region can be asked"},
	kindQuota:         {draftProblems + "quota-exceeded", http.StatusTooManyRequests, "The quota is used up"},
	kindReduced:       {draftProblems + "temporary-reduced-capacity", http.StatusServiceUnavailable, "Capacity is reduced for now"},
	kindInternal:      {ownProblems + "internal", http.StatusInternalServerError, "Internal error"},
}

// problem is one refusal, before it is written.
type problem struct {
	kind   kind
	status int // 0 means the kind's own
	detail string
	errs   []quota.FieldError
}

func (p *problem) code() int { return cmp.Or(p.status, problems[p.kind].status) }

// invalid makes the problem of a request that breaks rules.
func invalid(fault quota.Fault, errs []quota.FieldError) problem {
	p := problem{kind: kindInvalid, errs: errs, detail: "Nothing was charged; see errors for each mistake."}
	switch fault {
	case quota.FaultCost:
		p.kind = kindCost
		p.detail = "A cost above a limit can never be admitted, so it is no use to retry; nothing was charged."
	case quota.FaultReuse:
		p.kind = kindReuse
		p.detail = "An Idempotency-Key belongs to one request; use a new key for another one. Nothing was charged."
	case quota.FaultInput:
	}
	return p
}

// appendMembers appends the problem's members without the braces, beginning
// with type.
func (p *problem) appendMembers(b []byte) []byte {
	b = append(b, `"type":"`...)
	b = append(b, problems[p.kind].uri...)
	b = append(b, `","title":"`...)
	b = append(b, problems[p.kind].title...)
	b = append(b, `","status":`...)
	b = strconv.AppendInt(b, int64(p.code()), 10)
	if p.detail != "" {
		b = append(b, `,"detail":`...)
		b = appendText(b, p.detail)
	}
	if len(p.errs) == 0 {
		return b
	}
	b = append(b, `,"errors":[`...)
	start := len(b)
	for i, e := range p.errs {
		before := len(b)
		if i > 0 {
			b = append(b, ',')
		}
		if b = appendError(b, e); i > 0 && len(b)-start > maxErrorText {
			b = append(b[:before], `,{"pointer":"#","detail":"and more errors"}`...)
			break
		}
	}
	return append(b, ']')
}

const (
	// maxAnswer bounds an answer to a request that breaks rules, in bytes.
	maxAnswer = 8 << 10
	// maxErrorText bounds the errors of one problem, in bytes.
	maxErrorText = 5 << 10
	// maxPointer and maxDetail bound each of its errors, before they are escaped.
	maxPointer, maxDetail = 160, 320
)

func appendError(b []byte, e quota.FieldError) []byte {
	b = append(b, `{"pointer":"#`...)
	// RFC 6901 §6: a URI fragment, in which JSON has nothing to escape.
	b = append(b, (&url.URL{Fragment: clip(e.Pointer, maxPointer)}).EscapedFragment()...)
	b = append(b, `","detail":`...)
	b = appendText(b, clip(e.Detail, maxDetail))
	return append(b, '}')
}

// maxBrief is what appendBrief appends at most for a check of a batch, and what surrounds it.
const maxBrief = 65

// appendBrief appends what is left of a problem where there is no room for more.
func (p *problem) appendBrief(b []byte) []byte {
	b = append(b, `"type":"`...)
	b = append(b, problems[p.kind].uri...)
	b = append(b, `","status":`...)
	return strconv.AppendInt(b, int64(p.code()), 10)
}
