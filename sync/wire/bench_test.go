package wire_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/regiond/regiond/sync/wire"
)

// A tick of the size that the goals are stated for: 1,000 changed partitions of
// 100,000, W = 60 s, units as of a few hundred requests at most. Ids are hashes,
// so tenants of 12 bytes cost what any other does.
const changed = 1_000

// tick returns the changes of one tick, of totals whose keys were created in the
// time before, µs.
func tick(rows int, before int64) *wire.Usage {
	r := rand.New(rand.NewPCG(3, 4))
	u := usageOf(1, rows)
	for i := range rows {
		u.Groups[0].Generations[i] = u.TimeUS - r.Int64N(before)
		u.Groups[0].Units[i] = 1 + r.Int64N(300)
	}
	return u
}

const (
	twoMinutes = 2 * minute
	day        = 24 * 60 * minute
)

// The goal is about 14 bytes for each changed partition, all of the message
// included.
func TestBytesPerPartition(t *testing.T) {
	for _, row := range []struct {
		name   string
		before int64
		sorted bool
		most   float64
	}{
		{"keys of the last 2 minutes, as they come", twoMinutes, false, 14.5},
		{"keys of the last 2 minutes, sorted", twoMinutes, true, 13},
		{"keys of the last day, as they come", day, false, 16.5},
		{"keys of the last day, sorted", day, true, 14},
	} {
		u := tick(changed, row.before)
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
	for _, before := range []int64{twoMinutes, day} {
		u := tick(changed, before)
		u.Groups[0].Sort()
		data := wire.AppendUsage(nil, u)
		name := fmt.Sprintf("generations=%dm", before/minute)
		b.Run("append/"+name, func(b *testing.B) {
			b.ReportAllocs()
			buf := make([]byte, 0, 4*len(data))
			for b.Loop() {
				buf = wire.AppendUsage(buf[:0], u)
			}
			report(b, len(buf))
		})
		b.Run("decode/"+name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := wire.DecodeUsage(data); err != nil {
					b.Fatal(err)
				}
			}
			report(b, len(data))
		})
	}
}

func BenchmarkSort(b *testing.B) {
	u := tick(changed, day)
	for b.Loop() {
		again := tick(0, day).Groups[0]
		again.IDs = append(again.IDs, u.Groups[0].IDs...)
		again.Generations = append(again.Generations, u.Groups[0].Generations...)
		again.Units = append(again.Units, u.Groups[0].Units...)
		again.Sort()
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/changed, "ns/partition")
}

func report(b *testing.B, size int) {
	b.ReportMetric(float64(size)/changed, "bytes/partition")
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/changed, "ns/partition")
}
