package wan

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

func newLine(l Link) *line { return &line{link: l, random: rand.New(rand.NewPCG(1, 2))} }

// plans sends packets a millisecond apart and returns how many arrive, and how long each
// copy takes.
func plans(l Link, protocol byte, packets int) (took []time.Duration, order []int) {
	at, one := time.Unix(0, 0), newLine(l)
	type copied struct {
		due    time.Time
		number int
	}
	var all []copied
	for n := range packets {
		now := at.Add(time.Duration(n) * time.Millisecond)
		for _, due := range one.plan(protocol, now) {
			took = append(took, due.Sub(now))
			all = append(all, copied{due, n})
		}
	}
	slices.SortStableFunc(all, func(a, b copied) int { return a.due.Compare(b.due) })
	for _, c := range all {
		order = append(order, c.number)
	}
	return took, order
}

func TestPlans(t *testing.T) {
	const packets = 10_000
	for _, row := range []struct {
		name        string
		link        Link
		tcp, udp    int // how many of ten thousand arrive, repeated ones twice
		inOrder     bool
		least, most time.Duration
	}{
		{"nothing", Link{}, packets, packets, true, 0, 0},
		{"delay", Link{Delay: 40 * time.Millisecond}, packets, packets, true, 40 * time.Millisecond, 40 * time.Millisecond},
		{"jitter", Link{Delay: 40 * time.Millisecond, Jitter: 20 * time.Millisecond}, packets, packets, true, 40 * time.Millisecond, 60 * time.Millisecond},
		{"loss", Link{Loss: 0.1}, 9000, 9000, true, 0, 0},
		{"loss of UDP", Link{LossUDP: 0.5}, packets, 5000, true, 0, 0},
		{"repeated", Link{Duplicate: 0.2}, 12_000, 12_000, true, 0, 0},
		{"reordered", Link{Delay: 10 * time.Millisecond, Reorder: 0.1}, packets, packets, false, 0, 10 * time.Millisecond},
		{"cut", Link{Delay: time.Second}.Cut(), 0, 0, true, 0, 0},
	} {
		for protocol, want := range map[byte]int{6: row.tcp, protocolUDP: row.udp} {
			took, order := plans(row.link, protocol, packets)
			if off := len(took) - want; off < -packets/50 || off > packets/50 || want%packets == 0 && off != 0 {
				t.Errorf("%s: %d copies of protocol %d arrive, want about %d", row.name, len(took), protocol, want)
			}
			if sorted := slices.IsSorted(order); sorted != row.inOrder {
				t.Errorf("%s: in order: %v", row.name, sorted)
			}
			if len(took) > 0 && (slices.Min(took) < row.least || slices.Max(took) > row.most) {
				t.Errorf("%s: it takes %v to %v, want %v to %v", row.name, slices.Min(took), slices.Max(took), row.least, row.most)
			}
		}
	}
}
