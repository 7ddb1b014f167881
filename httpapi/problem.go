package httpapi

import (
	"net/http"
	"strconv"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/regiond/regiond/quota"
)

// kind is a type of problem (RFC 9457). The table below is the only place where
// its URI, title and usual status stand.
type kind uint8

const (
	kindInvalid kind = iota
	kindUnauthorized
	kindIdentity
	kindNoForwardAuth
	kindNotFound
	kindMethod
	kindTooLarge
	kindMediaType
	kindCost
	kindReuse
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
	kindIdentity:      {ownProblems + "identity", http.StatusForbidden, "The request cannot be attributed"},
	kindNoForwardAuth: {ownProblems + "forward-auth-not-configured", http.StatusForbidden, "Forward-auth is not configured"},
	kindNotFound:      {ownProblems + "not-found", http.StatusNotFound, "There is no such call"},
	kindMethod:        {ownProblems + "method-not-allowed", http.StatusMethodNotAllowed, "The call has another method"},
	kindTooLarge:      {ownProblems + "body-too-large", http.StatusRequestEntityTooLarge, "The body is too large"},
	kindMediaType:     {ownProblems + "unsupported-media-type", http.StatusUnsupportedMediaType, "The body is not JSON"},
	kindCost:          {ownProblems + "cost-exceeds-limit", http.StatusUnprocessableEntity, "The cost is above the limit"},
	kindReuse:         {ownProblems + "idempotency-key-reuse", http.StatusUnprocessableEntity, "The Idempotency-Key came with another request"},
	kindQuota:         {draftProblems + "quota-exceeded", http.StatusTooManyRequests, "The quota is used up"},
	kindReduced:       {draftProblems + "temporary-reduced-capacity", http.StatusServiceUnavailable, "Capacity is reduced for now"},
	kindInternal:      {ownProblems + "internal", http.StatusInternalServerError, "The service has a defect"},
}

// problem is one refusal, before it is written.
type problem struct {
	kind     kind
	status   int // 0 means the kind's own
	detail   string
	mistakes []quota.FieldError
}

func (p *problem) code() int {
	if p.status != 0 {
		return p.status
	}
	return problems[p.kind].status
}

// invalid makes the problem of a request that breaks rules.
func invalid(fault quota.Fault, mistakes []quota.FieldError) problem {
	p := problem{kind: kindInvalid, mistakes: mistakes, detail: "Nothing was charged; see errors for each mistake."}
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
	if len(p.mistakes) == 0 {
		return b
	}
	b = append(b, `,"errors":[`...)
	for i, m := range p.mistakes {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(b, `{"pointer":"#`...)
		b = appendFragment(b, m.Pointer)
		b = append(b, `","detail":`...)
		b = appendText(b, m.Detail)
		b = append(b, '}')
	}
	return append(b, ']')
}

// appendText appends a JSON string. The error that is left aside is invalid
// UTF-8, and that has become U+FFFD in the result.
func appendText(b []byte, s string) []byte {
	quoted, _ := jsontext.AppendQuote(b, s)
	return quoted
}

// appendFragment appends a JSON pointer in the form of a URI fragment (RFC 6901
// §6): bytes that a fragment may not hold are percent-encoded, which also
// leaves nothing that JSON would have to escape.
func appendFragment(b []byte, pointer string) []byte {
	const hexDigits = "0123456789ABCDEF"
	for i := range len(pointer) {
		c := pointer[i]
		if fragmentByte(c) {
			b = append(b, c)
			continue
		}
		b = append(b, '%', hexDigits[c>>4], hexDigits[c&15])
	}
	return b
}

func fragmentByte(c byte) bool {
	if c|0x20 >= 'a' && c|0x20 <= 'z' || c >= '0' && c <= '9' {
		return true
	}
	switch c {
	case '-', '.', '_', '~', '!', '$', '&', '\'', '(', ')', '*', '+', ',', ';', '=', ':', '@', '/', '?':
		return true
	}
	return false
}
