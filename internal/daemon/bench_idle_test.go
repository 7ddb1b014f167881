//go:build linux

package daemon

import (
	"testing"
	"time"
)

const (
	// idleTurn is how long a regiond that nobody asks is looked at, idleRounds times.
	idleTurn   = 2 * time.Second
	idleRounds = 5
)

// BenchmarkIdle is how much of a processor a regiond uses that knows a million
// partitions of each of two other regions, both of which it hears, and is asked for
// nothing. Run it with -benchtime 1x.
func BenchmarkIdle(b *testing.B) {
	s := newBenchStage(b, benchCrowd{Count: 1_000_000, Buckets: 1}, 1_000_000)
	for b.Loop() {
		sc := s.open(b, true)
		var share []float64
		for range idleRounds {
			before, began := processTime(b, sc.one.cmd.Process.Pid), time.Now()
			<-time.After(idleTurn)
			spent := processTime(b, sc.one.cmd.Process.Pid) - before
			share = append(share, 100*spent.Seconds()/time.Since(began).Seconds())
		}
		b.Logf("%.3g %% of a processor", share)
		b.ReportMetric(median(share), "cpu-%")
		b.ReportMetric(sc.metric(b, "regiond_sync_partitions", ""), "partitions")
		sc.close()
	}
}
