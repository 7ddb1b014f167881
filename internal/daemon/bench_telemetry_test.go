//go:build unix

package daemon

import (
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

const (
	// benchAskers is how many checks are under way at any time: enough that regiond
	// is never idle.
	benchAskers = 16
	// benchFull is for how long in all they are counted, and benchTurn at a time.
	benchFull = 4 * time.Second
	benchTurn = 250 * time.Millisecond
)

// BenchmarkTelemetry is how many checks over HTTP a regiond decides in a second when
// it counts everything and traces one in a hundred, over how many it decides when it
// does neither: as many as it can, on one Redis, in turns. Each ratio is the median
// over the rounds. Run it with -benchtime 1x: it takes most of a minute.
func BenchmarkTelemetry(b *testing.B) {
	var sent atomic.Int64 // spans' messages
	collector := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		sent.Add(1)
	}))
	defer collector.Close()
	s := newBenchStage(b, benchCrowd{}, 20_000)
	off := map[string]string{"OTEL_SDK_DISABLED": "true", "OTEL_EXPORTER_OTLP_ENDPOINT": ""}
	on := map[string]string{
		"OTEL_SDK_DISABLED": "false", "OTEL_METRICS_EXPORTER": "", "OTEL_EXPORTER_OTLP_ENDPOINT": collector.URL,
		"OTEL_TRACES_SAMPLER": "parentbased_traceidratio", "OTEL_TRACES_SAMPLER_ARG": "0.01",
	}
	for b.Loop() {
		var without, with []benchTelemetry
		for range benchRounds {
			a, m := s.saturate(b, off, on)
			without, with = append(without, a), append(with, m)
		}
		reportTelemetry(b, without, with)
	}
	if sent.Load() == 0 {
		b.Error("no spans were sent: this measured nothing")
	}
}

// benchTelemetry is what one regiond showed.
type benchTelemetry struct {
	decisions float64 // a second
	cpu       float64 // of regiond, µs for each of them
	wrong     int
}

// saturate asks two regionds in turns of a quarter of a second, so that what else the
// machine does meets both alike.
func (s *benchStage) saturate(b *testing.B, off, on map[string]string) (without, with benchTelemetry) {
	b.Helper()
	a, m := s.openWith(b, off), s.openWith(b, on)
	defer a.close()
	defer m.close()
	for _, sc := range []*benchScene{a, m} {
		sc.door.closedLoop(benchWarm)
		sc.door.seen = &benchLatencies{}
	}
	before := [2]float64{a.cpu(b), m.cpu(b)}
	for turn := range int(benchFull / benchTurn) {
		first, second := a, m
		if turn%2 != 0 {
			first, second = m, a
		}
		first.door.closedLoop(benchTurn)
		second.door.closedLoop(benchTurn)
	}
	return a.came(b, before[0]), m.came(b, before[1])
}

// openWith opens a regiond that inherits an environment.
func (s *benchStage) openWith(b *testing.B, environment map[string]string) *benchScene {
	b.Helper()
	for name, value := range environment {
		b.Setenv(name, value)
	}
	return s.open(b, false)
}

func (sc *benchScene) cpu(b *testing.B) float64 {
	b.Helper()
	return sc.metric(b, "process_cpu_seconds_total", "")
}

// came is what a regiond came to since its processor time was that.
func (sc *benchScene) came(b *testing.B, before float64) benchTelemetry {
	b.Helper()
	seen := sc.door.seen
	if len(seen.wrong) > 0 {
		b.Logf("%d answers such as %s", len(seen.wrong), seen.wrong[0])
	}
	n := float64(len(seen.took))
	return benchTelemetry{decisions: n / benchFull.Seconds(), cpu: (sc.cpu(b) - before) * 1e6 / n, wrong: len(seen.wrong)}
}

// closedLoop has each of the askers ask again as soon as it was answered.
func (a *benchAsker) closedLoop(long time.Duration) {
	var askers sync.WaitGroup
	defer askers.Wait()
	end := time.Now().Add(long)
	for range benchAskers {
		askers.Go(func() {
			for time.Now().Before(end) {
				a.check()
			}
		})
	}
}

func reportTelemetry(b *testing.B, without, with []benchTelemetry) {
	var decisions, cpu, on, off []float64
	wrong := 0
	for i := range with {
		b.Logf("off %+v, on %+v", without[i], with[i])
		decisions = append(decisions, with[i].decisions/without[i].decisions)
		cpu = append(cpu, with[i].cpu/without[i].cpu)
		on, off = append(on, with[i].decisions), append(off, without[i].decisions)
		wrong += with[i].wrong + without[i].wrong
	}
	b.ReportMetric(median(decisions), "decisions-ratio")
	b.ReportMetric(median(cpu), "cpu-ratio")
	b.ReportMetric(median(off), "decisions/s-off")
	b.ReportMetric(median(on), "decisions/s-on")
	b.ReportMetric(float64(wrong), "wrong-answers")
}
