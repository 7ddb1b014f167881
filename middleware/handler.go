package middleware

import (
	"encoding/json"
	"errors"
	"net/http"
)

// Handler checks each request before next serves it. It adds the fields of
// Decision.Header to the response. A refusal is a problem document of RFC 9457:
//
//	403  Identify returned an error
//	422  the cost is above the limit: it never fits
//	429  denied, with Retry-After
//	500  regiond refuses the check as invalid, or it is too large: a mistake in the program
//	503  regiond shed the check, with Retry-After; a fail mode is closed; or regiond is
//	     unavailable and OnAway is Closed
//
// The check ends with the request's context. Handler panics when Options.Identify
// is nil, when it is called and not with the first request.
func (c *Client) Handler(next http.Handler) http.Handler {
	if c.options.Identify == nil {
		panic("middleware: Handler needs Options.Identify")
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if c.admit(w, r) {
			next.ServeHTTP(w, r)
		}
	})
}

// admit reports whether a request may pass; if not, it has written the answer.
func (c *Client) admit(w http.ResponseWriter, r *http.Request) bool {
	check, err := c.options.Identify(r)
	if err != nil {
		if c.options.Observe != nil {
			c.options.Observe(r.Context(), check, Decision{}, err)
		}
		refuse(w, http.StatusForbidden, "about:blank", "The request cannot be attributed to a caller.")
		return false
	}
	if c.options.TrustTraceparent && c.options.Propagate == nil && check.TraceParent == "" && check.TraceState == "" {
		check.TraceParent, check.TraceState = r.Header.Get("Traceparent"), r.Header.Get("Tracestate")
	}
	d, err := c.Check(r.Context(), check)
	for field, values := range d.Header {
		w.Header()[field] = values
	}
	var invalid *InvalidError
	switch {
	case d.Allowed:
		return true
	case errors.As(err, &invalid) && invalid.Status == http.StatusUnprocessableEntity:
		refuse(w, invalid.Status, "about:blank", "The request costs more than its limit; it never fits.")
	case errors.As(err, &invalid):
		refuse(w, http.StatusInternalServerError, "about:blank", "The rate limiter refused the check as invalid.")
	case err != nil: // the request's own context has ended
		refuse(w, http.StatusServiceUnavailable, "about:blank", "The request ended before the rate limiter answered.")
	case d.Away:
		refuse(w, http.StatusServiceUnavailable, "about:blank", "The rate limiter is unavailable.")
	case d.Basis == "shed":
		refuse(w, d.Status, typeBase+"temporary-reduced-capacity", "Too many requests arrived at once. Try again after the seconds in Retry-After.")
	case d.Status == http.StatusServiceUnavailable:
		refuse(w, d.Status, typeBase+"temporary-reduced-capacity", "The rate limiter cannot count, and this policy refuses then.")
	default:
		refuse(w, d.Status, typeBase+"quota-exceeded", "The rate limit of this caller is used up. Try again after the seconds in Retry-After.")
	}
	return false
}

// typeBase begins the problem types of the IETF's RateLimit draft.
const typeBase = "https://iana.org/assignments/http-problem-types#"

func refuse(w http.ResponseWriter, status int, kind, detail string) {
	doc, _ := json.Marshal(struct { // four plain fields: cannot fail
		Type   string `json:"type"`
		Title  string `json:"title"`
		Status int    `json:"status"`
		Detail string `json:"detail"`
	}{kind, http.StatusText(status), status, detail})
	h := w.Header()
	h.Set("Content-Type", "application/problem+json")
	h.Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_, _ = w.Write(append(doc, '\n'))
}
