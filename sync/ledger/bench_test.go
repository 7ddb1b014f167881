//go:build unix

package ledger_test

import (
	"fmt"
	"runtime"
	"syscall"
	"testing"
	"time"

	"github.com/regiond/regiond/sync/ledger"
	"github.com/regiond/regiond/sync/wire"
)

// BenchmarkMemory prints what a known partition costs when two peers told of it in
// two buckets each, and what it costs when we use it too; everything counted. The
// index has steps, so sizes between 600,000 and 1,200,000 are shown.
func BenchmarkMemory(b *testing.B) {
	for _, n := range []int{600_000, 800_000, 1_000_000, 1_200_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			for b.Loop() {
				clock := &fakeClock{}
				before := heap()
				l := crowd(b, n, clock, "us-east", "ap-south")
				remote := heap() - before
				for i := range n {
					use(l, hash(i), 1, startUS-minute)
					use(l, hash(i), 1, startUS)
				}
				own := heap() - before
				b.ReportMetric(float64(remote)/float64(n), "B/remote-partition")
				b.ReportMetric(float64(own)/float64(n), "B/own-partition")
				runtime.KeepAlive(l)
			}
		})
	}
}

// BenchmarkTick is one Take and one Sweep over a million known partitions of which
// 10,000 changed.
func BenchmarkTick(b *testing.B) {
	const known, changed = 1_000_000, 10_000
	clock := &fakeClock{}
	l := crowd(b, known, clock, "us-east", "ap-south")
	for i := range known {
		use(l, hash(i), 1, startUS)
	}
	for len(l.Take(1<<20, true)) > 0 {
	}
	units := int64(1) // grows for ever
	for _, entries := range []int{32_768, 5_000} {
		b.Run(fmt.Sprint(entries), func(b *testing.B) {
			spent, ticks := time.Duration(0), 0
			for b.Loop() {
				units++
				for i := range changed {
					use(l, hash(i*97%known), units, startUS)
				}
				before := cpu()
				l.Take(entries, true)
				l.Sweep()
				spent += cpu() - before
				ticks++
			}
			b.ReportMetric(float64(spent.Microseconds())/1000/float64(ticks), "cpu-ms/tick")
		})
	}
}

// cpu is the processor time this process has used, whatever else the machine does.
func cpu() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		panic(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// BenchmarkEstimates and BenchmarkRecord are what a decision waits for.
func BenchmarkEstimates(b *testing.B) {
	clock := &fakeClock{}
	l := crowd(b, 1_000_000, clock, "us-east", "ap-south")
	b.ResetTimer()
	b.RunParallel(func(pb *testing.PB) {
		out := make([]int64, 3)
		for i := 0; pb.Next(); i++ {
			l.Estimates(hash(i*7919%1_000_000), minute, time.Second, out)
		}
	})
}

func BenchmarkRecord(b *testing.B) {
	clock := &fakeClock{}
	l := crowd(b, 1_000_000, clock, "us-east", "ap-south")
	b.ReportAllocs()
	i := 0
	for b.Loop() {
		use(l, hash(i*7919%1_000_000), int64(i), startUS)
		i++
	}
}

// BenchmarkFold is a message of 1,000 changes that are news.
func BenchmarkFold(b *testing.B) {
	clock := &fakeClock{}
	l := crowd(b, 1_000_000, clock, "us-east", "ap-south")
	g := wire.Group{Limit: "standard.sustained", WindowUS: minute, BucketUS: minute, Bucket: startUS / minute}
	for i := range 1000 {
		g.IDs, g.Generations, g.Units = append(g.IDs, uint64(i)<<54|hash(i)>>10), append(g.Generations, startUS), append(g.Units, 0)
	}
	units := int64(0)
	for b.Loop() {
		units++
		for i := range g.Units {
			g.Units[i] = units
		}
		if err := l.Fold("us-east", startUS, 0, []wire.Group{g}); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkBacklog is one Take while a million partitions wait to be published, as
// after a start or a long silence of the bus: the mesh does nothing else meanwhile.
func BenchmarkBacklog(b *testing.B) {
	const known = 1_000_000
	clock := &fakeClock{}
	l := newLedger(b, clock, func(o *ledger.Options) { o.Regions = func() int { return 3 } })
	for i := range known {
		use(l, hash(i), int64(1+hash(i)%100), startUS)
		if i%1000 == 0 {
			clock.advance(time.Millisecond)
		}
	}
	before, takes := cpu(), 0
	for b.Loop() {
		if len(l.Take(32_768, true)) == 0 {
			b.Fatal("nothing is left to take")
		}
		takes++
	}
	b.ReportMetric(float64((cpu()-before).Microseconds())/1000/float64(takes), "cpu-ms/take")
}
