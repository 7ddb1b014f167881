package httpapi

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"mime"
	"net/url"
	"slices"
	"strings"

	"github.com/regiond/regiond/httpapi/answer"
	"github.com/regiond/regiond/quota"
)

// request reads the request of a check or report; when it cannot, it answers
// and returns false. The limiter validates what could be decoded.
func (c *call) request() (quota.Request, bool) {
	body, ok := c.readBody()
	if !ok {
		return quota.Request{}, false
	}
	req, errs := decodeCheck(body, "")
	query, others := parseQuery(c.query, false)
	key, err := idempotencyKey(c.Header.Values(idempotencyHeader))
	if err != nil {
		others = append(others, quota.FieldError{Detail: err.Error()})
	}
	if len(errs) == 0 && len(others) > 0 {
		errs = req.Validate()
	}
	if errs = append(errs, others...); len(errs) > 0 {
		c.refuse(answer.Broken(quota.FaultInput, errs...))
		return quota.Request{}, false
	}
	req.Explain, req.IdempotencyKey = query.Explain, key
	return req, c.mayName(req.Tenant) && c.mayExplain(req.Explain)
}

const idempotencyHeader = "Idempotency-Key"

// idempotencyKey returns the key of a request, "" when it has none. Quotes are
// part of the key where a client sends the structured string of the draft.
func idempotencyKey(lines []string) (string, error) {
	switch {
	case len(lines) == 0:
		return "", nil
	case len(lines) > 1:
		return "", errors.New("header Idempotency-Key is duplicated")
	case len(lines[0]) > quota.MaxIdempotencyKey:
		return "", fmt.Errorf("header Idempotency-Key must have at most %d characters", quota.MaxIdempotencyKey)
	}
	if err := quota.ValidID(lines[0]); err != nil {
		return "", fmt.Errorf("header Idempotency-Key %w", err)
	}
	return lines[0], nil
}

// readBody reads a JSON body, and answers itself when it cannot.
func (c *call) readBody() (body []byte, ok bool) {
	if detail := c.mediaType(); detail != "" {
		c.refuse(answer.Problem{Kind: answer.MediaType, Detail: detail})
		return nil, false
	}
	var err error
	if c.Length <= MaxBody {
		body, err = io.ReadAll(io.LimitReader(c.Request.Body, MaxBody+1))
	}
	switch {
	case c.Length > MaxBody || len(body) > MaxBody:
		c.Fields.Set("Connection", "close")
		c.refuse(answer.Problem{Kind: answer.TooLarge, Detail: fmt.Sprintf("A body has at most %d bytes.", MaxBody)})
		return nil, false
	case err != nil:
		c.refuse(answer.Broken(quota.FaultInput, quota.FieldError{Detail: "the body could not be read to its end"}))
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

// maxParameters is more than any call has: policy, cost, explain and MaxDimensions.
const maxParameters = 32

// parseQuery reads a query strictly: an unknown, misspelt or repeated parameter
// is refused rather than ignored. All calls take explain; usage calls also take
// the policy, cost and dimensions. Errors point to where the same thing would be
// in a body.
func parseQuery(raw string, usage bool) (quota.Request, []quota.FieldError) {
	req := quota.Request{Cost: 1}
	if raw == "" {
		return req, nil
	}
	if strings.Count(raw, "&") >= maxParameters {
		return req, []quota.FieldError{{Detail: fmt.Sprintf("the query has more than %d parameters", maxParameters)}}
	}
	values, err := url.ParseQuery(raw)
	if err != nil {
		return req, []quota.FieldError{{Detail: "the query is not well-formed: " + truncate(err.Error())}}
	}
	var errs []quota.FieldError
	for _, name := range slices.Sorted(maps.Keys(values)) { // dimensions are sorted with them
		if pointer, detail := parseParameter(&req, name, values[name], usage); detail != "" {
			errs = append(errs, quota.FieldError{Pointer: pointer, Detail: detail})
		}
	}
	if len(req.Dimensions) > MaxDimensions {
		errs = append(errs, quota.FieldError{Pointer: "/dimensions", Detail: tooManyDimensions})
	}
	return req, errs
}

func parseParameter(req *quota.Request, name string, values []string, usage bool) (pointer, detail string) {
	pointer = "/" + escapeToken(name)
	dimension, isDimension := strings.CutPrefix(name, "dim.")
	if isDimension {
		pointer = "/dimensions/" + escapeToken(dimension)
	}
	if len(values) > 1 {
		return pointer, "is duplicated in the query"
	}
	value := values[0]
	switch {
	case name == "explain":
		req.Explain = value == "1"
		if value != "0" && value != "1" {
			return pointer, "must be 0 or 1"
		}
	case !usage:
		return pointer, "is not a parameter here; there is: explain"
	case name == "policy":
		req.Policy = value
		if value == "" {
			return pointer, emptyPolicy
		}
	case name == "cost":
		cost, ok := parseCost(value)
		if !ok {
			return pointer, costRule + ", is " + truncate(value)
		}
		req.Cost = cost
	case isDimension:
		req.Dimensions = append(req.Dimensions, quota.Dimension{Name: dimension, Value: value})
	default:
		return pointer, "is not a parameter here; there are: policy, cost, explain, dim.<name>"
	}
	return "", ""
}

// pathID decodes a path segment; the limiter validates the id in it.
func pathID(segment string) (string, error) {
	id, err := url.PathUnescape(segment)
	if err != nil {
		return "", errors.New("has a broken percent-escape")
	}
	return id, nil
}
