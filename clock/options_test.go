package clock_test

import (
	"context"
	"testing"

	"github.com/regiond/regiond/clock"
)

func TestOptions(t *testing.T) {
	read := func(context.Context) (int64, error) { return 0, nil }
	for _, row := range []struct {
		options clock.Options
		want    string // "" when they are right
	}{
		{clock.Options{Read: read}, ""},
		{clock.Options{Read: read, Interval: 10 * ms}, ""}, // the default timeout gives way
		{clock.Options{}, "clock options: option Read is missing: it asks Redis for TIME"},
		{
			clock.Options{Read: read, Interval: s, Timeout: 2 * s},
			"clock options: option Interval must be positive and Timeout between 0 and Interval, are 1s and 2s",
		},
		{
			clock.Options{Read: read, Interval: -s},
			"clock options: option Interval must be positive and Timeout between 0 and Interval, are -1s and -1s",
		},
		{
			clock.Options{Estimator: clock.EstimatorOptions{MaxDrift: 100_001, StepThreshold: -1}},
			"clock options: option Read is missing: it asks Redis for TIME\n" +
				"option MaxDrift must be between 0 and 100000 ppm, is 100001\n" +
				"option StepThreshold must not be negative, is -1ns",
		},
	} {
		tracker, err := clock.New(row.options)
		got := ""
		if err != nil {
			got = err.Error()
		}
		if got != row.want || (tracker == nil) != (err != nil) {
			t.Errorf("New(%+v): %q, want %q", row.options, got, row.want)
		}
	}
}
