package wan

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func newLine(l Link) *line { return &line{link: l, random: rand.New(rand.NewPCG(1, 2))} }

// fates sends packets a millisecond apart and says how many arrive, and how long each
// copy takes.
func fates(l Link, protocol byte, packets int) (took []time.Duration, order []int) {
	at, one := time.Unix(0, 0), newLine(l)
	type copied struct {
		due    time.Time
		number int
	}
	var all []copied
	for n := range packets {
		now := at.Add(time.Duration(n) * time.Millisecond)
		for _, due := range one.fate(packet{protocol: protocol, bytes: 1000, ports: [2]uint16{50_000, 7946}}, now) {
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

func TestFates(t *testing.T) {
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
		{"no TCP", Link{CutTCP: true}, 0, packets, true, 0, 0},
		{"no UDP", Link{CutUDP: true}, packets, 0, true, 0, 0},
		{"cut", Link{Delay: time.Second}.Cut(), 0, 0, true, 0, 0},
		{"no port 7946", Link{CutPort: 7946}, 0, 0, true, 0, 0},
		{"another port", Link{CutPort: 7222}, packets, packets, true, 0, 0},
		{"narrow", Link{Most: 999}, 0, 0, true, 0, 0},
		{"wide enough", Link{Most: 1000}, packets, packets, true, 0, 0},
	} {
		for protocol, want := range map[byte]int{protocolTCP: row.tcp, protocolUDP: row.udp} {
			took, order := fates(row.link, protocol, packets)
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

// A packet's fate is its number's, whatever happened to others of another kind.
func TestFatesAreOfTheSeed(t *testing.T) {
	l := Link{Delay: time.Millisecond, Jitter: time.Millisecond, Loss: 0.3, Duplicate: 0.3, Reorder: 0.3}
	_, first := fates(l, protocolTCP, 1000)
	_, again := fates(l, protocolTCP, 1000)
	if !slices.Equal(first, again) {
		t.Error("the same seed gave two fates")
	}
	a, b := newLine(l), newLine(l)
	for n := range 1000 {
		protocol := byte(protocolTCP)
		if n%2 == 0 {
			protocol = protocolUDP
		}
		x, y := a.fate(packet{protocol: protocolTCP}, time.Unix(0, 0)), b.fate(packet{protocol: protocol}, time.Unix(0, 0))
		if len(x) != len(y) {
			t.Fatalf("packet %d: %d copies, and %d when others are UDP", n, len(x), len(y))
		}
	}
}

// The queue gives out what a list gives that is sorted by time, and by arrival where
// times are equal; and never before it is due.
func TestQueueTwin(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var q parcels
		var twin []parcel
		now := time.Unix(0, 0)
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			if rapid.Bool().Draw(t, "add") {
				due := now.Add(time.Duration(rapid.IntRange(0, 5).Draw(t, "in")))
				p := parcel{due: due, to: len(twin)}
				first := q.add(due, p.to, nil)
				sooner := !slices.ContainsFunc(twin, func(o parcel) bool { return !o.due.After(due) })
				if first != sooner {
					t.Fatalf("the first: %v, want %v", first, sooner)
				}
				p.order = q.count
				twin = append(twin, p)
				continue
			}
			now = now.Add(time.Duration(rapid.IntRange(0, 3).Draw(t, "later")))
			slices.SortStableFunc(twin, func(a, b parcel) int { return a.due.Compare(b.due) })
			got, wait, ok := q.next(now)
			if len(twin) == 0 || twin[0].due.After(now) {
				if ok || len(twin) > 0 && wait != twin[0].due.Sub(now) {
					t.Fatalf("%+v after %v, nothing is due", got, wait)
				}
				continue
			}
			if !ok || got.order != twin[0].order {
				t.Fatalf("%+v, want %+v", got, twin[0])
			}
			twin = twin[1:]
		}
	})
}

func TestLinksAreValid(t *testing.T) {
	for _, l := range []Link{{Loss: -0.1}, {Duplicate: 1.1}, {Reorder: 2}, {LossUDP: -1}, {Delay: -1}, {Jitter: -1}, {Most: -1}} {
		if l.validate() == nil {
			t.Errorf("%+v is taken", l)
		}
	}
	if err := (Link{Loss: 1, Delay: time.Hour}).validate(); err != nil {
		t.Error(err)
	}
}
