package limiter_test

import (
	"context"
	"testing"
	"time"

	"github.com/regiond/regiond/quota"
)

// TestEndsAgreeWithTheWait: an answer does not say that a quota begins anew sooner than it denies.
func TestEndsAgreeWithTheWait(t *testing.T) {
	begins := time.Date(2026, 11, 28, 10, 30, 0, 0, time.UTC)
	now := begins
	r := memoryRig(t, onePolicy(quota.Policy{Limits: []quota.Limit{calendarLimit(t, quota.CalendarHour, 1)}}), func() time.Time { return now })
	r.check(t, "acme", 5)
	now = begins.Add(time.Hour)
	r.check(t, "acme", 1)
	now = begins.Add(-2 * time.Hour) // before both hours that are kept
	d := must(r.Peek(context.Background(), quota.Request{Tenant: "acme", Cost: 1, Explain: true}))(t)
	ends, err := time.Parse(time.RFC3339, d.Explanation.Limits[0].Ends)
	if fits := now.Add(d.RetryAfter()); err != nil || ends.Before(fits) {
		t.Errorf("its next hour begins at %v with nothing used, and yet nothing fits before %v: %v", ends.UTC(), fits, d.Explanation.Sentences)
	}
}
