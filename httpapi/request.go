package httpapi

import (
	"cmp"
	"fmt"
	"io"
	"mime"
	"strings"

	"github.com/regiond/regiond/httpapi/answer"
	"github.com/regiond/regiond/httpapi/input"
	"github.com/regiond/regiond/quota"
)

// item reads what an operation is about; when it cannot, it answers and returns false. The limiter validates what could be
// decoded, and finds whose a claim is.
func (c *call) item(op *operation) (it input.Item, ok bool) {
	body, ok := c.readBody()
	if !ok {
		return it, false
	}
	it = op.read(body, "")
	if op.claims {
		if c.query != "" {
			it.Errs = append(it.Errs, quota.FieldError{Detail: "this call has no parameters"})
		}
		return it, !c.broken(it.Errs)
	}
	query, others := input.Query(c.query, false)
	key, err := input.IdempotencyKey(c.Header.Values(idempotencyHeader))
	if err != nil {
		others = append(others, quota.FieldError{Detail: err.Error()})
	}
	if len(it.Errs) == 0 && len(others) > 0 {
		it.Errs = it.Request.Validate()
	}
	if c.broken(append(it.Errs, others...)) {
		return it, false
	}
	it.Request.Explain, it.Request.IdempotencyKey = query.Explain, key
	return it, c.mayName(it.Request.Tenant) && c.mayExplain(query.Explain)
}

// pathTenant is the tenant that the path of a call names, whose query is empty or as given; if it may not be named, or anything is
// wrong, it has answered.
func (c *call) pathTenant(query string) (tenant string, ok bool) {
	var errs []quota.FieldError
	tenant, err := input.PathID(c.tail)
	if err = cmp.Or(err, quota.ValidID(tenant)); err != nil {
		errs = append(errs, quota.FieldError{Pointer: "/tenant", Detail: err.Error()})
	}
	switch {
	case c.query == "" || c.query == query:
	case query == "":
		errs = append(errs, quota.FieldError{Detail: "this call has no parameters"})
	default:
		errs = append(errs, quota.FieldError{Detail: "unexpected query: there is only " + query})
	}
	return tenant, !c.broken(errs) && c.mayName(tenant)
}

const idempotencyHeader = "Idempotency-Key"

// MaxBody is the largest body, in bytes: a hundred checks of 650 bytes.
const MaxBody = 64 << 10

// readBody reads a JSON body, and answers itself when it cannot.
func (c *call) readBody() (body []byte, ok bool) {
	if detail := c.mediaType(); detail != "" {
		c.refuse(answer.Problem{Kind: answer.MediaType, Detail: detail})
		return nil, false
	}
	var err error
	switch {
	case c.Length < 0:
		body, err = io.ReadAll(io.LimitReader(c.Request.Body, MaxBody+1))
	case c.Length <= MaxBody:
		body = make([]byte, c.Length)
		_, err = io.ReadFull(c.Request.Body, body)
	}
	switch {
	case c.Length > MaxBody || len(body) > MaxBody:
		c.Fields.Set("Connection", "close")
		c.refuse(answer.Problem{Kind: answer.TooLarge, Detail: fmt.Sprintf("A body has at most %d bytes.", MaxBody)})
		return nil, false
	case err != nil:
		c.broken([]quota.FieldError{{Detail: "the body could not be read to its end"}})
		return nil, false
	case len(body) > 0 && c.late():
		c.shed()
		return nil, false
	}
	return body, c.enter()
}

// mediaType returns what is wrong with the type of the body, "" when nothing is.
func (c *call) mediaType() string {
	if enc := c.Header.Values("Content-Encoding"); len(enc) > 0 && enc[0] != "" && enc[0] != "identity" {
		return "Content-Encoding must be left out: a body is small and sent as it is."
	}
	// A page of any origin may send an untyped body or a form without a
	// preflight. Accepting them from a browser would let it spend quota.
	browser := c.Header.Values("Origin") != nil || c.Header.Values("Sec-Fetch-Site") != nil
	lines := c.Header.Values("Content-Type")
	switch {
	case len(lines) == 0 && !browser, len(lines) == 1 && isJSON(lines[0], !browser):
		return ""
	case browser:
		return "Content-Type must be application/json; in a browser's request it cannot be left out."
	}
	return "Content-Type must be application/json, or left out."
}

// maxContentType is more than any media type that is accepted has, in bytes.
const maxContentType = 128

// isJSON accepts application/json in UTF-8 and, where form is allowed, the type
// that "curl -d" sends by default.
func isJSON(contentType string, form bool) bool {
	if contentType == "application/json" {
		return true
	}
	if len(contentType) > maxContentType {
		return false
	}
	media, params, err := mime.ParseMediaType(contentType)
	if err != nil || media != "application/json" && (!form || media != "application/x-www-form-urlencoded") {
		return false
	}
	charset, ok := params["charset"]
	return len(params) == 0 || ok && len(params) == 1 && strings.EqualFold(charset, "utf-8")
}
