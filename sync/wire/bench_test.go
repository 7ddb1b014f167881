package wire_test

import (
	"math/rand/v2"
	"testing"

	"github.com/regiond/regiond/sync/wire"
)

// changed partitions of 100,000 are a tick of the size that the goals are stated for.
const changed = 1_000

// tick returns the changes of one tick, of counters whose keys were created in the time
// before, µs. Units are of a few hundred requests at most.
func tick(before int64) *wire.Usage {
	r := rand.New(rand.NewPCG(3, 4))
	u := usageOf(1, changed)
	for i := range changed {
		u.Groups[0].Generations[i] = u.TimeUS - r.Int64N(before)
		u.Groups[0].Units[i] = 1 + r.Int64N(300)
	}
	return u
}

const day = 24 * 60 * minute

// The goal is about 14 bytes for each changed partition, all of the message included.
func TestBytesPerPartition(t *testing.T) {
	for _, row := range []struct {
		name   string
		before int64
		sorted bool
		most   float64
	}{
		{"keys of the last 2 minutes, as they come", 2 * minute, false, 14.5},
		{"keys of the last 2 minutes, sorted", 2 * minute, true, 13},
		{"keys of the last day, as they come", day, false, 16.5},
		{"keys of the last day, sorted", day, true, 14},
	} {
		u := tick(row.before)
		if row.sorted {
			u.Groups[0].Sort()
		}
		sent := float64(len(wire.AppendUsage(nil, u))) / changed
		t.Logf("%-42s %5.2f bytes each", row.name, sent)
		if sent > row.most {
			t.Errorf("%s: %.2f bytes for each partition, at most %.2f are fine", row.name, sent, row.most)
		}
	}
}

func BenchmarkUsage(b *testing.B) {
	u := tick(day)
	u.Groups[0].Sort()
	data := wire.AppendUsage(nil, u)
	run := func(name string, f func() error) {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if err := f(); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/changed, "ns/partition")
		})
	}
	buf := make([]byte, 0, 4*len(data))
	run("append", func() error { buf = wire.AppendUsage(buf[:0], u); return nil })
	run("decode", func() error { _, err := wire.DecodeUsage(data); return err })
}
