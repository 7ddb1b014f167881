package daemon

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"time"

	"go.opentelemetry.io/otel/metric/noop"

	"github.com/regiond/regiond/internal/base/instruments"
	"github.com/regiond/regiond/internal/status"
	"github.com/regiond/regiond/quota"
)

// One loss is one line of the log, which names all limits, and says of the one that it costs most until when.
func TestLossIsLoggedByTheLongest(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	w := &boundWatch{
		d:     &Daemon{log: slog.New(slog.NewTextHandler(&log, nil))},
		total: instruments.On(noop.Meter{}).CounterBy("regiond.bound.closed.time", "s", "", "policy"),
	}
	burnt := func(name string, left time.Duration) status.Bound {
		until := time.Date(2026, 11, 28, 23, 0, 0, 0, time.UTC).Add(left)
		return status.Bound{Policy: "standard", Name: name, Reason: quota.ReasonBoundBurnt, LeftMS: left.Milliseconds(), Until: &until, Text: name}
	}
	closed := []status.Bound{burnt("hourly", time.Hour), burnt("monthly", 400*time.Hour), burnt("minute", time.Minute)}
	w.look(time.Second, closed)
	w.look(2*time.Second, closed)
	const want = `level=WARN msg=monthly limits="standard.hourly standard.monthly standard.minute" reason=bound_burnt until=2026-12-15T15:00:00.000Z`
	if got := log.String(); strings.Count(got, "\n") != 1 || !strings.Contains(got, want) {
		t.Errorf("it logged\n%s", got)
	}
}
