package httpapi

import (
	"fmt"
	"io"
	"strings"

	"github.com/regiond/regiond/quota"
)

// readBody reads a JSON body into c.in and answers itself when it cannot.
func (c *call) readBody() bool {
	if detail := c.mediaType(); detail != "" {
		c.refuse(problem{kind: kindMediaType, detail: detail})
		return false
	}
	c.limit = io.LimitedReader{R: c.r.Body, N: MaxBody + 1}
	if c.r.ContentLength > MaxBody {
		c.limit.N = 0
	}
	var err error
	c.in, err = appendAll(c.in[:0], &c.limit)
	switch {
	case c.limit.N == 0:
		c.w.Header().Set("Connection", "close")
		c.refuse(problem{kind: kindTooLarge, detail: fmt.Sprintf("A body has at most %d bytes.", MaxBody)})
		return false
	case err != nil:
		c.refuse(invalid(quota.FaultInput, []quota.FieldError{{Detail: "the body could not be read to its end"}}))
		return false
	}
	return true
}

func (c *call) mediaType() string {
	if enc := c.r.Header.Get("Content-Encoding"); enc != "" && enc != "identity" {
		return "Content-Encoding must be left out: a body is small and sent as it is."
	}
	// A page of any origin may send an untyped body or a form without being asked
	// first. Accepting them from a browser would let it spend quota.
	browser := c.r.Header["Origin"] != nil || c.r.Header["Sec-Fetch-Site"] != nil
	lines := c.r.Header["Content-Type"]
	switch {
	case len(lines) == 0 && !browser, len(lines) == 1 && isJSON(lines[0], !browser):
		return ""
	case browser:
		return "Content-Type must be application/json; in a browser's request it cannot be left out."
	}
	return "Content-Type must be application/json, or left out."
}

// isJSON accepts application/json and, where form is allowed, what "curl -d" says of
// any body.
func isJSON(contentType string, form bool) bool {
	media, params, _ := strings.Cut(contentType, ";")
	switch strings.ToLower(strings.TrimSpace(media)) {
	case "application/json":
	case "application/x-www-form-urlencoded":
		if !form {
			return false
		}
	default:
		return false
	}
	params = strings.ToLower(strings.ReplaceAll(params, " ", ""))
	return params == "" || params == "charset=utf-8" || params == `charset="utf-8"`
}

// appendAll is io.ReadAll into a buffer that is there already.
func appendAll(b []byte, r io.Reader) ([]byte, error) {
	for {
		if len(b) == cap(b) {
			b = append(b, 0)[:len(b)]
		}
		n, err := r.Read(b[len(b):cap(b)])
		b = b[:len(b)+n]
		if err == io.EOF {
			return b, nil
		}
		if err != nil {
			return b, err
		}
	}
}
