package wire_test

import (
	"slices"

	"pgregory.net/rapid"

	"github.com/regiond/regiond/quota"
	"github.com/regiond/regiond/sync/wire"
)

// The generators draw every message that may be sent, with a taste for the edges
// of each range, and nil rather than empty columns: that is what a reader returns.

var (
	anyRegion   = rapid.StringMatching(`[a-z0-9][a-z0-9_-]{0,62}`)
	anyInstance = rapid.StringMatching(`[!-~]{1,12}|[!-~]{255}`)
	anyTime     = edges(1, wire.EndOfTime-1)
	anySeq      = rapid.Uint64Min(1)
)

// edges draws from lo…hi, and often one of the two.
func edges(lo, hi int64) *rapid.Generator[int64] {
	return rapid.OneOf(rapid.Int64Range(lo, hi), rapid.Int64Range(lo, min(hi, lo+300)), rapid.SampledFrom([]int64{lo, hi}))
}

// several draws 0 to most values, nil for none.
func several[T any](t *rapid.T, g *rapid.Generator[T], most int, label string) []T {
	return slices.Clip(append([]T(nil), rapid.SliceOfN(g, 0, most).Draw(t, label)...))
}

func anyProcess() *rapid.Generator[quota.Process] {
	return rapid.Custom(func(t *rapid.T) quota.Process {
		return quota.Process{Region: anyRegion.Draw(t, "region"), Instance: anyInstance.Draw(t, "instance"), Boot: anyTime.Draw(t, "boot")}
	})
}

func anyGroup(rows int) *rapid.Generator[wire.Group] {
	return rapid.Custom(func(t *rapid.T) wire.Group {
		g := wire.Group{
			Limit:    anyRegion.Draw(t, "policy") + "." + anyRegion.Draw(t, "limit"),
			WindowUS: edges(quota.MinWindow.Microseconds(), quota.MaxWindow.Microseconds()).Draw(t, "window"),
		}
		g.BucketUS = edges((g.WindowUS+wire.MaxBuckets-1)/wire.MaxBuckets, g.WindowUS).Draw(t, "length")
		g.Bucket = edges(0, (wire.EndOfTime-1)/g.BucketUS).Draw(t, "bucket")
		for range rapid.IntRange(0, rows).Draw(t, "rows") {
			g.IDs = append(g.IDs, rapid.Uint64().Draw(t, "id"))
			g.Generations = append(g.Generations, edges(1, wire.EndOfTime).Draw(t, "generation"))
			g.Units = append(g.Units, edges(0, quota.MaxCounter).Draw(t, "units"))
		}
		return g
	})
}

func anyUsage() *rapid.Generator[*wire.Usage] {
	return rapid.Custom(func(t *rapid.T) *wire.Usage {
		u := &wire.Usage{
			From: anyProcess().Draw(t, "from"), Seq: anySeq.Draw(t, "seq"), TimeUS: anyTime.Draw(t, "time"),
			Groups: several(t, anyGroup(40), 6, "groups"),
		}
		if rapid.Bool().Draw(t, "handed back") {
			u.Origin, u.OriginTimeUS = anyRegion.Draw(t, "of"), edges(0, wire.EndOfTime-1).Draw(t, "of time")
		}
		if rapid.Bool().Draw(t, "snapshot") {
			count := rapid.Uint32Range(1, wire.MaxChunks).Draw(t, "count")
			u.Chunk = wire.Chunk{
				Snapshot: rapid.Uint64Min(1).Draw(t, "snapshot"),
				Index:    rapid.Uint32Range(0, count-1).Draw(t, "index"), Count: count,
			}
		}
		return u
	})
}

func anyHeartbeat() *rapid.Generator[*wire.Heartbeat] {
	return rapid.Custom(func(t *rapid.T) *wire.Heartbeat {
		b := &wire.Heartbeat{
			From: anyProcess().Draw(t, "from"), Seq: anySeq.Draw(t, "seq"), TimeUS: anyTime.Draw(t, "time"),
			Members:  several(t, anyRegion, 8, "members"),
			Topology: rapid.Uint64().Draw(t, "topology"),
			UnsentMS: edges(0, wire.EndOfTime/1000).Draw(t, "unsent"),
			Leaving:  rapid.Bool().Draw(t, "leaving"), Full: rapid.Bool().Draw(t, "full"),
			Key: rapid.Uint64().Draw(t, "key"),
		}
		slices.Sort(b.Members)
		b.Members = slices.Compact(b.Members)
		// Few processes over and over, so that some beats are long and worth compressing.
		peers := several(t, anyProcess(), 3, "peers")
		for i := range len(peers) * rapid.IntRange(1, 60).Draw(t, "acks of each") {
			p := peers[i%len(peers)]
			b.Acks = append(b.Acks, wire.Ack{Process: p, Seq: anySeq.Draw(t, "acked"), ReceivedUS: anyTime.Draw(t, "received")})
		}
		if rapid.Bool().Draw(t, "weights") {
			for _, m := range b.Members {
				b.Weights = append(b.Weights, quota.Weight{Region: m, Weight: edges(1, wire.MaxWeight).Draw(t, "weight")})
			}
			slices.Reverse(b.Weights)
		}
		return b
	})
}

func anySnapshotRequest() *rapid.Generator[*wire.SnapshotRequest] {
	return rapid.Custom(func(t *rapid.T) *wire.SnapshotRequest {
		r := &wire.SnapshotRequest{From: anyProcess().Draw(t, "from"), OwnState: rapid.Bool().Draw(t, "own_state"), Missing: several(t, anyRegion, 5, "missing")}
		slices.Sort(r.Missing)
		r.Missing = slices.Compact(r.Missing)
		return r
	})
}
