package httpapi_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/regiond/regiond/quota"
)

func TestBatchResultsStandWhereTheirChecksStood(t *testing.T) {
	f := &fake{decide: func(_ context.Context, r quota.Request) (quota.Decision, error) {
		switch r.Tenant {
		case "full":
			return denied(r), nil
		case "closed":
			return quota.Decision{Policy: "standard", Basis: quota.BasisClosed, Mode: quota.ModeLocal}, nil
		case "dear":
			return quota.Decision{}, &quota.Invalid{Fault: quota.FaultCost, Fields: []quota.FieldError{{Pointer: "/cost", Detail: "is at most 600"}}}
		case "lost":
			return quota.Decision{}, errors.New("no store")
		}
		return allowed(r), nil
	}}
	body := `{"checks":[
		{"tenant":"fine"}, {"tenant":"full"}, {"tenant":"a b"}, {"tenant":"x","cost":1e3,"tier":1},
		{"tenant":"dear","cost":601}, 7, {"tenant":"lost"}, {"tenant":"closed"}, {"tenant":"fine","dimensions":{"user":"1"}}]}`
	got := serve(data(t, options(f)), request("POST", "/v1/check:batch?explain=1", body))
	golden(t, "batch", page(got))
	if f.calls() != 6 || !f.last(t).Explain {
		t.Errorf("the limiter saw %+v", f.seen)
	}
}

func TestBadBatches(t *testing.T) {
	many := strings.Repeat(`{"tenant":"a"},`, 100) + `{"tenant":"a"}`
	rows := []struct {
		name, body, header string
		want               []string
	}{
		{"none", `{"checks":[]}`, "", []string{"#/checks: must have 1 to 100 checks, has 0"}},
		{"too many", `{"checks":[` + many + `]}`, "", []string{"#/checks: must have 1 to 100 checks, has 101"}},
		{"missing", `{}`, "", []string{"#/checks: is required"}},
		{"no array", `{"checks":{"tenant":"a"}}`, "", []string{"#/checks: must be an array of 1 to 100 checks, is an object"}},
		{"an array", `[{"tenant":"a"}]`, "", []string{"#: must be a JSON object with the member checks"}},
		{"twice", `{"checks":[{"tenant":"a"}],"checks":[]}`, "", []string{"#/checks: is duplicated"}},
		{"unknown beside", `{"x":1,"checks":[{"tenant":"a"}],"y":2}`, "", []string{"#/x: is not a member", "#/y: is not a member"}},
		{"one broken", `{"checks":[{"tenant":"a"},{"tenant":"b"]}`, "", []string{"#/checks: is not JSON at byte 39"}},
		{"text after", `{"checks":[{"tenant":"a"}]}]`, "", []string{"#: the body must hold one JSON value"}},
		{"with a key", `{"checks":[{"tenant":"a"}]}`, "Idempotency-Key: k", []string{"#: header Idempotency-Key belongs to one check"}},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			f := &fake{}
			var header []string
			if row.header != "" {
				header = append(header, row.header)
			}
			got := serve(data(t, options(f)), request("POST", "/v1/check:batch", row.body, header...))
			if got.status != 400 || f.calls() != 0 {
				t.Errorf("status %d after %d calls, want 400 after none", got.status, f.calls())
			}
			checkMistakes(t, got.mistakes(t), row.want)
		})
	}
}

func TestBatchOfAHundred(t *testing.T) {
	f := &fake{}
	var checks []string
	for i := range 100 {
		checks = append(checks, fmt.Sprintf(`{"tenant":"t%d"}`, i))
	}
	got := serve(data(t, options(f)), request("POST", "/v1/check:batch", `{"checks":[`+strings.Join(checks, ",")+`]}`))
	if n := strings.Count(got.body, `"status":200`); got.status != 200 || n != 100 {
		t.Fatalf("status %d with %d results", got.status, n)
	}
	for i, r := range f.seen {
		if r.Tenant != fmt.Sprintf("t%d", i) {
			t.Fatalf("check %d asked for %q", i, r.Tenant)
		}
	}
}
