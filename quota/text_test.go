package quota_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/regiond/regiond/quota"
)

func TestWordsRoundTrip(t *testing.T) {
	for _, row := range []struct {
		name  string
		words string
		value func(i uint8) fmt.Stringer
		parse func(text string) (fmt.Stringer, error)
	}{
		{
			"algorithm", "sliding_log sliding_window gcra",
			func(i uint8) fmt.Stringer { return quota.Algorithm(i) },
			func(s string) (fmt.Stringer, error) {
				var v quota.Algorithm
				err := v.UnmarshalText([]byte(s))
				return v, err
			},
		},
		{
			"scope", "region global",
			func(i uint8) fmt.Stringer { return quota.Scope(i) },
			func(s string) (fmt.Stringer, error) {
				var v quota.Scope
				err := v.UnmarshalText([]byte(s))
				return v, err
			},
		},
		{
			"fail mode", "share open closed",
			func(i uint8) fmt.Stringer { return quota.FailMode(i) },
			func(s string) (fmt.Stringer, error) {
				var v quota.FailMode
				err := v.UnmarshalText([]byte(s))
				return v, err
			},
		},
		{
			"enforcement", "enforce observe",
			func(i uint8) fmt.Stringer { return quota.Enforcement(i) },
			func(s string) (fmt.Stringer, error) {
				var v quota.Enforcement
				err := v.UnmarshalText([]byte(s))
				return v, err
			},
		},
	} {
		words := strings.Fields(row.words)
		for i, w := range words {
			v := row.value(uint8(i))
			if v.String() != w {
				t.Errorf("%s %d is %q, want %q", row.name, i, v, w)
			}
			if back, err := row.parse(w); err != nil || back != v {
				t.Errorf("%s %q became %v (%v)", row.name, w, back, err)
			}
		}
		if got := row.value(uint8(len(words))).String(); got != fmt.Sprintf("invalid(%d)", len(words)) {
			t.Errorf("a %s too many is %q", row.name, got)
		}
		for _, bad := range []string{"", strings.ToUpper(words[0]), words[0] + " ", words[0] + "x", "0"} {
			_, err := row.parse(bad)
			if err == nil || !strings.Contains(err.Error(), strings.Join(words, ", ")) {
				t.Errorf("%s %q: %v does not list the words", row.name, bad, err)
			}
		}
	}
}

// TestAnswerWords are part of the API: clients and dashboards compare them.
func TestAnswerWords(t *testing.T) {
	var basis, mode, reason []string
	for i := range uint8(7) {
		basis = append(basis, quota.Basis(i).String())
	}
	for i := range uint8(6) {
		mode = append(mode, quota.Mode(i).String())
	}
	for i := range uint8(11) {
		reason = append(reason, quota.Reason(i).String())
	}
	for _, row := range []struct{ got, want string }{
		{strings.Join(basis, " "), "exact estimate cached local open closed invalid(6)"},
		{strings.Join(mode, " "), "global stale partitioned joining local invalid(5)"},
		{strings.Join(reason, " "), " redis_timeout redis_down redis_refused breaker_open peer_silent one_way views_differ joining process_paused invalid(10)"},
	} {
		if row.got != row.want {
			t.Errorf("%q, want %q", row.got, row.want)
		}
	}
}
