package input_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/regiond/regiond/httpapi/input"
	"github.com/regiond/regiond/quota"
)

func TestParseCost(t *testing.T) {
	for text, want := range map[string]int64{ // 0 means refused
		"1": 1, "10": 10, "1099511627776": quota.MaxUnits,
		"1099511627777": 0, "9999999999999": 0, "10995116277760": 0, "9223372036854775808": 0,
		"": 0, "0": 0, "00": 0, "01": 0, "-1": 0, "+1": 0, "1.0": 0, "1e3": 0, " 1": 0, "1 ": 0, "0x1": 0, "1_0": 0, "١": 0,
	} {
		got, ok := input.ParseCost(text)
		if ok != (want > 0) || ok && got != want {
			t.Errorf("%q: %d %v, want %d", text, got, ok, want)
		}
	}
}

// TestUnitsOfAnOverride: a mistake in the units of a limit is at that limit.
func TestUnitsOfAnOverride(t *testing.T) {
	for _, units := range []string{"-1", "1.5", `"9"`, "null", "{}"} {
		_, errs := input.Override([]byte(`{"limits":{"other":7,"b/s":` + units + `}}`))
		if len(errs) != 1 || errs[0].Pointer != "/limits/b~1s" || !strings.HasPrefix(errs[0].Detail, "must be a whole number ") {
			t.Errorf("%s: %+v", units, errs)
		}
	}
}

// TestRefused: what no golden file of httpapi has.
func TestRefused(t *testing.T) {
	const noCheck = "must be an object with the members tenant, policy, dimensions, cost, is null"
	for body, want := range map[string]string{
		" null":                                    ": must be an object with the members checks, is null",
		`{"checks":[ null]}`:                       "/checks/0: " + noCheck,
		`{"checks":[],"checks":[{}]}`:              "/checks: is duplicated",
		`{"checks":[{"cost":{"a":1}}]}`:            "/checks/0/cost: must be a whole number between 1 and 1099511627776 in plain digits, is an object",
		`{"checks":[{"tenant":"a","tenant":"a"}]}`: "/checks/0/tenant: is duplicated",
	} {
		items, errs := input.Batch([]byte(body), "checks", input.Check)
		if len(errs) == 0 {
			errs = items[0].Errs
		}
		if len(errs) != 1 || errs[0].Pointer+": "+errs[0].Detail != want {
			t.Errorf("%s: %v, want %s", body, errs, want)
		}
	}
	if errs := input.Check([]byte("null\n"), "").Errs; len(errs) != 1 || errs[0].Detail != noCheck {
		t.Errorf("null: %v", errs)
	}
}

// TestReservationBodies: an amount has to be sent, and 0 is one; times are whole milliseconds.
func TestReservationBodies(t *testing.T) {
	first := func(errs []quota.FieldError) string {
		if len(errs) == 0 {
			return ""
		}
		return errs[0].Pointer + ": " + errs[0].Detail
	}
	const amount, ttl = "must be a whole number between 0 and 1099511627776 in plain digits", "must be a whole number of milliseconds between 1 and 1099511627776 in plain digits"
	for body, want := range map[string]string{
		`{"tenant":"a","amount":0}`:               "",
		`{"tenant":"a","amount":5,"ttl_ms":1000}`: "",
		`{"tenant":"a"}`:                          "/amount: " + amount + ", is missing",
		`{"tenant":"a","amount":-1}`:              "/amount: " + amount + ", is -1",
		`{"tenant":"a","amount":1099511627777}`:   "/amount: " + amount + ", is 1099511627777",
		`{"tenant":"a","amount":00}`:              ": is not JSON at byte 24: invalid character '0' after object value (expecting ',' or '}')",
		`{"tenant":"a","amount":1,"ttl_ms":0}`:    "/ttl_ms: " + ttl + ", is 0",
		`{"tenant":"a","amount":1,"cost":1}`:      "/cost: is not a member here; there are: tenant, policy, dimensions, amount, ttl_ms",
	} {
		if errs := input.Reserve([]byte(body), "").Errs; first(errs) != want {
			t.Errorf("reserve %s: %s, want %s", body, first(errs), want)
		}
	}
	r := input.Reserve([]byte(`{"tenant":"a","amount":5,"ttl_ms":1500}`), "").Request
	if !r.Reserve || r.Cost != 5 || r.TTL != 1500*time.Millisecond {
		t.Errorf("reserve: %+v", r)
	}
	for body, want := range map[string]string{
		`{"reservation":"r","actual":0}`: "",
		`{"reservation":"r"}`:            "/actual: " + amount + ", is missing",
		`{"actual":1}`:                   "/reservation: must be the id of a reservation, is missing",
		`{"reservation":7,"actual":1}`:   "/reservation: must be a string, is a number",
	} {
		if errs := input.Settle([]byte(body), "").Errs; first(errs) != want {
			t.Errorf("settle %s: %s, want %s", body, first(errs), want)
		}
	}
	for body, want := range map[string]string{
		`{"reservation":"r","ttl_ms":1}`: "",
		`{"reservation":"r"}`:            "/ttl_ms: " + ttl + ", is missing",
	} {
		if errs := input.Extend([]byte(body), "").Errs; first(errs) != want {
			t.Errorf("extend %s: %s, want %s", body, first(errs), want)
		}
	}
	items, errs := input.Batch([]byte(`{"settlements":[{"reservation":"r","actual":1},{"reservation":"r"}]}`), "settlements", input.Settle)
	if len(errs) != 0 || len(items) != 2 || items[0].Claim.Actual != 1 || first(items[1].Errs) != "/settlements/1/actual: "+amount+", is missing" {
		t.Errorf("settlements: %+v, %v", items, errs)
	}
}

// A body is either a request that encoding/json reads alike, or has errors;
// never both, never neither.
func FuzzDecodeCheck(f *testing.F) {
	for _, seed := range []string{
		`{"tenant":"acme"}`, `{"tenant":"a","policy":"p","dimensions":{"user":"1","ip":"::1"},"cost":5}`,
		`{"tenant":"a","tenant":"b"}`, `{"tenant":"a","cost":1e3}`, `{"tenant":"a","cost":1.0}`, `{}`, `[]`, ``,
		`{"checks":[{"tenant":"a"},{"cost":0},7]}`, `{"tenant":"\u0000"}`, "{\"tenant\":\"\xff\"}", `{"tenant":"a"} {}`,
		`{"tenant":"a","dimensions":{"u":"1","u":"2"}}`, `{"tenant":"a","cost":1099511627777}`,
		`{"checks":[` + strings.Repeat(`{"tenant":"a"},`, 200) + `{}]}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		before := string(body)
		it := input.Check(body, "")
		if string(body) != before {
			t.Fatal("the body was changed")
		}
		if len(it.Errs) == 0 && len(it.Request.Validate()) == 0 { // a duplicated dimension is the limiter's to refuse
			sameAsPlain(t, body, it.Request)
		}
		if items, wrong := input.Batch(body, "checks", input.Check); len(items) > input.MaxBatch || (len(wrong) == 0) != (len(items) > 0) {
			t.Fatalf("%d checks, %v", len(items), wrong)
		}
	})
}

// sameAsPlain compares with the dumb twin, which is laxer but not different.
func sameAsPlain(t *testing.T, body []byte, r quota.Request) {
	t.Helper()
	var dumb struct {
		Tenant, Policy string
		Dimensions     map[string]string
		Cost           *int64
	}
	if err := json.Unmarshal(body, &dumb); err != nil {
		t.Fatalf("passed what encoding/json refuses: %v", err)
	}
	cost := int64(1)
	if dumb.Cost != nil {
		cost = *dumb.Cost
	}
	if r.Tenant != dumb.Tenant || r.Policy != dumb.Policy || r.Cost != cost || len(r.Dimensions) != len(dumb.Dimensions) {
		t.Fatalf("got %+v, plainly %+v", r, dumb)
	}
	for _, d := range r.Dimensions {
		if dumb.Dimensions[d.Name] != d.Value {
			t.Fatalf("got %+v, plainly %+v", r, dumb)
		}
	}
}
