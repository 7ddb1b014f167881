package quota_test

import (
	"encoding"
	"fmt"
	"strings"
	"testing"

	"github.com/regiond/regiond/quota"
)

// enumValue is an enumeration that topology.yaml names.
type enumValue[E any] interface {
	*E
	encoding.TextUnmarshaler
}

// namesRoundTrip holds that the values of E, from 0 on, have these names and no others.
func namesRoundTrip[E interface {
	~uint8
	fmt.Stringer
}, P enumValue[E]](t *testing.T, names ...string) {
	for i, name := range names {
		var back E
		if err := P(&back).UnmarshalText([]byte(name)); err != nil || back != E(i) || back.String() != name {
			t.Errorf("%q became %v (%v), want %T %d", name, back, err, back, i)
		}
	}
	var none E
	if next := E(len(names)).String(); P(&none).UnmarshalText([]byte(next)) == nil {
		t.Errorf("one after %q is %q", names, next)
	}
	for _, bad := range []string{"", strings.ToUpper(names[0]), names[0] + " ", names[0] + "x", "0"} {
		var v E
		if err := P(&v).UnmarshalText([]byte(bad)); err == nil || !strings.Contains(err.Error(), strings.Join(names, ", ")) {
			t.Errorf("%q: %v does not list %q", bad, err, names)
		}
	}
}

func TestNamesRoundTrip(t *testing.T) {
	namesRoundTrip[quota.Algorithm](t, "sliding_log", "sliding_window", "gcra")
	namesRoundTrip[quota.Counts](t, "requests", "tokens")
	namesRoundTrip[quota.Scope](t, "region", "global")
	namesRoundTrip[quota.FailMode](t, "share", "open", "closed")
	namesRoundTrip[quota.OverloadMode](t, "shed", "open")
	namesRoundTrip[quota.Enforcement](t, "enforce", "observe")
}

// TestAnswerNames are part of the API: clients and dashboards compare them.
func TestAnswerNames(t *testing.T) {
	var basis, mode, reason []string
	for i := range uint8(8) {
		basis = append(basis, quota.Basis(i).String())
	}
	for i := range uint8(6) {
		mode = append(mode, quota.Mode(i).String())
	}
	for i := range uint8(16) {
		reason = append(reason, quota.Reason(i).String())
	}
	for _, row := range []struct{ got, want string }{
		{strings.Join(basis, " "), "exact estimate cached local open closed shed invalid(7)"},
		{strings.Join(mode, " "), "global stale partitioned joining local invalid(5)"},
		{strings.Join(reason, " "), " redis_timeout redis_down redis_refused breaker_open overloaded peer_silent one_way views_differ joining process_paused bound_closed bound_burnt too_many_holds suspended invalid(15)"},
	} {
		if row.got != row.want {
			t.Errorf("%q, want %q", row.got, row.want)
		}
	}
}

func TestInvalidIsOneLine(t *testing.T) {
	err := &quota.Invalid{Fields: []quota.FieldError{{"/tenant", "is empty"}, {"/dimensions/ip", "is long"}}}
	if got := err.Error(); got != "tenant: is empty; dimensions/ip: is long" {
		t.Errorf("%q", got)
	}
}
