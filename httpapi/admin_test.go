package httpapi_test

import (
	"context"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/regiond/regiond/httpapi"
)

// A reset may take longer than an answer, and reports when it did not finish.
func TestResetHasItsOwnDeadline(t *testing.T) {
	for takes, status := range map[time.Duration]int{
		httpapi.ResetTimeout - time.Millisecond: 204,
		httpapi.ResetTimeout + time.Millisecond: 503,
	} {
		synctest.Test(t, func(t *testing.T) {
			f := &fake{reset: func(ctx context.Context, _ string) error {
				select {
				case <-time.After(takes):
					return nil
				case <-ctx.Done():
					return ctx.Err()
				}
			}}
			start := time.Now()
			got := serve(admin(t, options(f)), request("DELETE", "/v1/usage/acme", ""))
			if took := time.Since(start); got.status != status || took != min(takes, httpapi.ResetTimeout) || took >= httpapi.WriteTimeout {
				t.Errorf("%d after %v: %s", got.status, took, got.body)
			}
			if got.status == 503 && (!strings.Contains(got.body, "in part or not at all") || got.field("Retry-After") == "") {
				t.Errorf("%v %s", got.header, got.body)
			}
		})
	}
}

func TestOptionsAreValidated(t *testing.T) {
	for name, row := range map[string]struct {
		value any
		data  bool // whether NewData refuses it too
	}{
		"Limiter": {nil, true}, "Logger": {nil, true}, "Meter": {nil, true}, "Deadline": {time.Duration(-1), true}, "MaxInFlight": {-1, true},
		"Tracing": {&httpapi.Tracing{}, true}, "Ready": {nil, false}, "Regions": {nil, false}, "Top": {nil, false}, "Overrides": {nil, false},
		"Metrics": {nil, false}, "Page": {nil, false}, "Events": {nil, false},
	} {
		o := options(&fake{})
		field := reflect.ValueOf(&o).Elem().FieldByName(name)
		if field.SetZero(); row.value != nil {
			field.Set(reflect.ValueOf(row.value))
		}
		_, dataErr := httpapi.NewData(o)
		_, adminErr := httpapi.NewAdmin(o)
		if (dataErr != nil) != row.data || adminErr == nil {
			t.Errorf("%s: %v, %v", name, dataErr, adminErr)
		}
	}
}
