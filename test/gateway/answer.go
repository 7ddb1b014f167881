package gateway

import (
	"encoding/json"
	"net/http"
	"strconv"
	"testing"

	"github.com/dunglas/httpsfv"
)

// Answer is what came back to the customer.
type Answer struct {
	Question
	Status int
	Header http.Header
	Text   string
}

// Is fails the test unless the answer has the status.
func (a Answer) Is(t *testing.T, status int) {
	t.Helper()
	if a.Status != status {
		t.Fatalf("%s %s as %q = %d, want %d\n%v\n%s", a.Method, a.Path, a.As, a.Status, status, a.Header, a.Text)
	}
}

// Lacks checks that the answer has none of the header fields.
func (a Answer) Lacks(t *testing.T, fields ...string) {
	t.Helper()
	for _, f := range fields {
		if v, ok := a.Header[http.CanonicalHeaderKey(f)]; ok {
			t.Errorf("%s %s is answered with %s: %q, want none", a.Method, a.Path, f, v)
		}
	}
}

// Problem checks that the body is a problem document of RFC 9457.
func (a Answer) Problem(t *testing.T, status int) {
	t.Helper()
	if ct := a.Header.Values("Content-Type"); len(ct) != 1 || ct[0] != "application/problem+json" {
		t.Errorf("Content-Type = %q, want application/problem+json once", ct)
	}
	var doc struct {
		Type, Title, Detail string
		Status              int
	}
	if err := json.Unmarshal([]byte(a.Text), &doc); err != nil {
		t.Fatalf("the body is no problem document: %v\n%s", err, a.Text)
	}
	if doc.Status != status || doc.Type == "" || doc.Title == "" || doc.Detail == "" {
		t.Errorf("the problem document of %d reads %+v", status, doc)
	}
}

// Seconds reads a header field that is a number.
func (a Answer) Seconds(t *testing.T, field string) int64 {
	t.Helper()
	n, err := strconv.ParseInt(a.Header.Get(field), 10, 64)
	if err != nil {
		t.Fatalf("%s: %v", field, err)
	}
	return n
}

// Param reads an integer parameter of the item `"name";…` in a field that is a
// list of RFC 9651.
func (a Answer) Param(t *testing.T, field, name, param string) int64 {
	t.Helper()
	list, err := httpsfv.UnmarshalList(a.Header.Values(field))
	if err != nil {
		t.Fatalf("%s: %q: %v", field, a.Header.Values(field), err)
	}
	for _, member := range list {
		item, ok := member.(httpsfv.Item)
		if !ok || item.Value != name {
			continue
		}
		if v, ok := item.Params.Get(param); ok {
			if n, ok := v.(int64); ok {
				return n
			}
		}
	}
	t.Fatalf("%s: %q has no item %q with an integer %s", field, a.Header.Values(field), name, param)
	return 0
}
