package wire_test

import (
	"fmt"
	"math/rand/v2"

	"pgregory.net/rapid"

	"github.com/regiond/regiond/quota"
	"github.com/regiond/regiond/quota/loan"
	"github.com/regiond/regiond/sync/wire"
)

// 2026-01-01 in µs, and the number of its bucket of a minute.
const (
	midnight = 1_767_225_600_000_000
	minute   = 60_000_000
	bucket   = midnight / minute
)

func process(region string) quota.Process {
	return quota.Process{Region: region, Instance: region + "-1.example.net", Boot: midnight - 12_345_678}
}

// usageOf returns changes in groups of this many rows each, with ids like hashes,
// generations of the last two minutes and small units.
func usageOf(groups, rows int) *wire.Usage {
	r := rand.New(rand.NewPCG(1, 2))
	u := &wire.Usage{Head: wire.Head{From: process("eu-west"), Seq: 42}, TimeUS: midnight + minute/2, Number: 7}
	for i := range groups {
		g := wire.Group{Limit: fmt.Sprintf("standard.limit-%d", i), WindowUS: minute, Bucket: bucket}
		for range rows {
			g.IDs = append(g.IDs, r.Uint64())
			g.Generations = append(g.Generations, u.TimeUS-r.Int64N(2*minute))
			g.Units = append(g.Units, 1+r.Int64N(100))
		}
		u.Groups = append(u.Groups, g)
	}
	return u
}

func beatOf(acks, regions int) *wire.Heartbeat {
	b := &wire.Heartbeat{
		Head: wire.Head{From: process("eu-west"), Seq: 43}, TimeUS: midnight + 500_000,
		Topology: 0x0123_4567_89ab_cdef, UnsentMS: 80, Number: 7,
	}
	for i := range acks {
		b.Acks = append(b.Acks, wire.Ack{Process: process(fmt.Sprintf("r%03d", i)), Seq: uint64(7 + i), ReceivedUS: midnight + 400_000})
	}
	for i := range regions {
		name := fmt.Sprintf("r%03d", i)
		b.Members = append(b.Members, name)
		b.Weights = append(b.Weights, quota.Weight{Region: name, Weight: int64(i + 1)})
	}
	return b
}

// wantOf returns the want of the i-th partition, which borrows that often.
func wantOf(i, held int) wire.Want {
	const now = midnight + minute/2
	w := wire.Want{PartitionID: hash(i), Want: loan.Want{
		From: "eu-west", Epoch: 4_000_000_000, Time: now + int64(i)*1000, Need: 600, Lack: 150, Urgent: 12,
		Rate: 0.0009765625, Share: 220, Ceil: 260, Slack: 3,
	}}
	for k := range held {
		w.Held = append(w.Held, loan.Loan{
			Peer: fmt.Sprintf("us-east-%d", k%2), ID: loan.ID{Epoch: 3_000_000_000, Stamp: now - 3_456_789 - int64(i)},
			Units: 120, Back: 20, Until: now + 20_123_456,
		})
	}
	return w
}

func grantOf(i int) wire.Grant {
	const now = midnight + minute/2
	return wire.Grant{PartitionID: hash(i), Grant: loan.Grant{
		From: "eu-west", ID: loan.ID{Epoch: 4_000_000_000, Stamp: now - 3_456_789 - int64(i)}, Units: 1200,
		Epoch: 3_000_000_000, Time: now + int64(i)*1000,
	}}
}

func returnOf(i int) wire.Return {
	return wire.Return{PartitionID: hash(i), Loan: grantOf(i).ID, Back: 900}
}

// hash is an id as partitions have them.
func hash(i int) uint64 { return rand.New(rand.NewPCG(9, uint64(i))).Uint64() }

// anyGroup draws a group, often at the edges of each range.
func anyGroup(rows int) *rapid.Generator[wire.Group] {
	return rapid.Custom(func(t *rapid.T) wire.Group {
		g := wire.Group{
			Limit:    rapid.StringMatching(`[a-z0-9][a-z0-9_-]{0,62}\.[a-z0-9][a-z0-9_-]{0,62}`).Draw(t, "limit"),
			WindowUS: edges(quota.MinWindow.Microseconds(), quota.MaxWindow.Microseconds()).Draw(t, "window"),
		}
		g.Bucket = edges(0, (wire.EndOfTime-1)/g.WindowUS).Draw(t, "bucket")
		for range rapid.IntRange(0, rows).Draw(t, "rows") {
			g.IDs = append(g.IDs, rapid.Uint64().Draw(t, "id"))
			g.Generations = append(g.Generations, edges(1, wire.EndOfTime).Draw(t, "generation"))
			g.Units = append(g.Units, edges(0, quota.MaxCounter).Draw(t, "units"))
		}
		if rapid.Bool().Draw(t, "grown") {
			for range g.IDs {
				g.Growth = append(g.Growth, rapid.Uint64().Draw(t, "growth"), rapid.Uint64().Draw(t, "growth"))
			}
		}
		if len(g.IDs) > 0 && rapid.Bool().Draw(t, "held") {
			g.Gauges = make([]wire.Gauge, len(g.IDs))
			for range rapid.IntRange(1, len(g.IDs)).Draw(t, "gauges") {
				g.Gauges[rapid.IntRange(0, len(g.IDs)-1).Draw(t, "row")] = wire.Gauge{
					Sequence: edges(1, wire.EndOfTime).Draw(t, "sequence"), Units: edges(0, quota.MaxUnits).Draw(t, "held"),
					LeftUS: edges(0, quota.MaxTTL.Microseconds()).Draw(t, "left"),
				}
			}
		}
		return g
	})
}

// edges draws from lo…hi, and often one of the two.
func edges(lo, hi int64) *rapid.Generator[int64] {
	return rapid.OneOf(rapid.Int64Range(lo, hi), rapid.Int64Range(lo, min(hi, lo+300)), rapid.SampledFrom([]int64{lo, hi}))
}
