package ledger_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/regiond/regiond/quota"
	"github.com/regiond/regiond/sync/ledger"
	"github.com/regiond/regiond/sync/wire"
)

// message is what one region said.
type message struct {
	author string
	group  wire.Group
}

// messages draws some, all of the same moment.
func messages(t *rapid.T) []message {
	return rapid.SliceOfN(rapid.Custom(func(t *rapid.T) message {
		s := rapid.SampledFrom(lines).Draw(t, "limit")
		m := message{rapid.SampledFrom([]string{"us-east", "ap-south", "eu-west"}).Draw(t, "author"), wire.Group{
			Limit: s.Limit, WindowUS: s.WindowUS, BucketUS: s.BucketUS,
			Bucket: startUS/s.BucketUS + rapid.Int64Range(-1, 0).Draw(t, "bucket"),
		}}
		for range rapid.IntRange(1, 4).Draw(t, "entries") {
			m.group.IDs = append(m.group.IDs, rapid.SampledFrom(ids).Draw(t, "id"))
			m.group.Generations = append(m.group.Generations, startUS+rapid.Int64Range(1, 3).Draw(t, "epoch"))
			m.group.Units = append(m.group.Units, rapid.Int64Range(1, quota.MaxCounter).Draw(t, "units"))
		}
		return m
	}), 1, 12).Draw(t, "messages")
}

// told is a ledger that heard so much.
func told(t *rapid.T, ms ...message) *ledger.Ledger {
	l := newLedger(t, &fakeClock{}, nil)
	for _, m := range ms {
		if err := l.Fold(m.author, startUS, 0, []wire.Group{m.group}); err != nil {
			t.Fatal(err)
		}
	}
	return l
}

// retell passes on what a ledger knows of each region.
func retell(t *rapid.T, from *ledger.Ledger, to *ledger.Ledger) {
	for _, region := range []string{"us-east", "ap-south", "eu-west"} {
		for piece := range from.Live(region, rapid.IntRange(1, 9).Draw(t, "piece")) {
			if err := to.Fold(region, startUS, 0, piece); err != nil {
				t.Fatal(err)
			}
		}
	}
}

func same(t *rapid.T, law string, a, b *ledger.Ledger) {
	t.Helper()
	if diff := cmp.Diff(a.Snapshot(), b.Snapshot()); diff != "" {
		t.Fatalf("not %s:\n%s", law, diff)
	}
	window := pairLimit.WindowUS
	for _, id := range ids {
		x, y := make([]int64, 3), make([]int64, 3)
		a.Estimates(id, window, 0, x)
		b.Estimates(id, window, 0, y)
		if x[a.Region("us-east")] != y[b.Region("us-east")] || x[a.Region("ap-south")] != y[b.Region("ap-south")] {
			t.Fatalf("not %s: estimates %d and %d", law, x, y)
		}
	}
}

// TestMergeLaws: what a ledger holds is the largest of what it was told under each
// name, and so does not depend on order, repetition or the way that it came.
func TestMergeLaws(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		ms := messages(t)
		l := told(t, ms...)

		largest := map[ledger.Cell]int64{}
		for _, m := range ms {
			g := m.group
			for i, id := range g.IDs {
				name := ledger.Cell{ID: id, Limit: g.Limit, WindowUS: g.WindowUS, BucketUS: g.BucketUS, Region: m.author, Bucket: g.Bucket, Generation: g.Generations[i]}
				largest[name] = max(largest[name], g.Units[i])
			}
		}
		held := map[ledger.Cell]int64{}
		for _, c := range l.Snapshot() {
			name := c
			name.Units = 0
			held[name] = c.Units
		}
		if diff := cmp.Diff(largest, held); diff != "" {
			t.Fatalf("not the largest:\n%s", diff)
		}

		same(t, "commutative", l, told(t, rapid.Permutation(ms).Draw(t, "order")...))
		same(t, "idempotent", l, told(t, append(append(ms[:len(ms):len(ms)], ms...), ms[0])...))
		cut := rapid.IntRange(0, len(ms)).Draw(t, "cut")
		a, b := told(t, ms[:cut]...), told(t, ms[cut:]...)
		retell(t, b, a)
		same(t, "associative", l, a)
		retell(t, l, l)
		same(t, "idempotent when retold", l, a)
	})
}
