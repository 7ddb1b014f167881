package wire_test

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/regiond/regiond/quota"
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
			slices.Sort(u.Groups[0].Generations)
		}
		sent := float64(len(wire.Append(nil, u))) / changed
		t.Logf("%-42s %5.2f bytes each", row.name, sent)
		if sent > row.most {
			t.Errorf("%s: %.2f bytes for each partition, at most %.2f are fine", row.name, sent, row.most)
		}
	}
}

// Goals: at most 47 bytes for each grant of a message of many, and 60 with its part of the
// message where it is one of ten.
func TestBytesPerLoan(t *testing.T) {
	secret := secretOf(t, "a key")
	partition := &quota.CounterKey{Tenant: "customer-0123456789", Policy: "standard", Limit: "sustained", Partition: "user:19.user-0123456789abcd:"}
	sealed := seal(t, "a key", sealedWant(hash(0), partition, nil))
	for _, row := range []struct {
		name string
		add  func(l *wire.Loans, i int)
		most float64 // of one among 100
	}{
		{"grant", func(l *wire.Loans, i int) { l.Grants = append(l.Grants, grantOf(i)) }, 47},
		{"return", func(l *wire.Loans, i int) { l.Returns = append(l.Returns, returnOf(i)) }, 30},
		{"want", func(l *wire.Loans, i int) { l.Wants = append(l.Wants, wantOf(i, 0)) }, 48},
		{"want with a loan", func(l *wire.Loans, i int) { l.Wants = append(l.Wants, wantOf(i, 1)) }, 75},
		{"want with its partition", func(l *wire.Loans, i int) {
			w := wantOf(i, 0)
			w.Sealed = sealed
			l.Wants = append(l.Wants, w)
		}, 170},
	} {
		size := func(n int) float64 {
			l := wire.Loans{Head: wire.Head{From: process("eu-west"), Seq: 1_000_000}}
			for i := range n {
				row.add(&l, i)
			}
			return float64(len(secret.Sign("rl.v1.loan.eu-west.us-east", wire.Append(nil, &l)))) / float64(n)
		}
		t.Logf("%-24s %6.1f bytes alone, %5.1f of ten, %5.1f of 100; the message's own part and MAC included", row.name, size(1), size(10), size(100))
		if size(100) > row.most || row.name == "grant" && size(10) > 60 {
			t.Errorf("a %s takes %.1f bytes, at most %.0f are fine", row.name, size(100), row.most)
		}
	}
}
