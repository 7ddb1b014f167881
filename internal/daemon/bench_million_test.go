//go:build unix

package daemon

import (
	"syscall"
	"testing"
	"time"
)

// BenchmarkMillion is the memory of a regiond that knows a million partitions of all
// three regions, in two buckets each, as the system and as Go count it. It is cut
// off: what the others use it was told at its start. Run it with -benchtime 1x.
func BenchmarkMillion(b *testing.B) {
	b.Setenv("GOMEMLIMIT", "off") // its children inherit it
	s := newBenchStage(b, benchCrowd{Count: 1_000_000, Buckets: 2}, 1)
	for b.Loop() {
		sc := &benchScene{}
		s.serve(b, sc, benchChild{Crowd: s.crowd, Told: true}, "127.0.0.1:1")
		b.ReportMetric(sc.metric(b, "process_resident_memory_bytes", "")/(1<<20), "rss-MiB")
		b.ReportMetric(sc.metric(b, "go_memstats_heap_alloc_bytes", "")/(1<<20), "heap-MiB")
		b.ReportMetric(sc.metric(b, "regiond_sync_partitions", ""), "partitions")
		b.ReportMetric(sc.metric(b, "regiond_sync_totals", ""), "totals")
		sc.close()
	}
}

// cpuTime is the processor time that this process has used, whatever else the
// machine does meanwhile.
func cpuTime(tb testing.TB) time.Duration {
	tb.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		tb.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// perCall runs do until the benchmark is satisfied and reports the processor time of
// a call.
func perCall(b *testing.B, do func(n int)) {
	b.Helper()
	b.ReportAllocs()
	n, before := 0, cpuTime(b)
	for b.Loop() {
		n++
		do(n)
	}
	b.ReportMetric(float64((cpuTime(b)-before).Nanoseconds())/float64(n), "cpu-ns/call")
}
