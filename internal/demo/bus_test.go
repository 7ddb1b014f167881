package demo_test

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"

	"pgregory.net/rapid"

	"github.com/regiond/regiond/internal/demo"
	meshsync "github.com/regiond/regiond/sync"
)

// wire is a bus that loses nothing: what it takes is in every region's inbox, or
// in that of the region that is asked, when Publish returns.
type wire struct {
	inboxes map[string]chan meshsync.Message
}

func newWire() *wire {
	w := &wire{inboxes: map[string]chan meshsync.Message{}}
	for _, name := range demo.Regions() {
		w.inboxes[name] = make(chan meshsync.Message, 1000)
	}
	return w
}

func (w *wire) of(region string) meshsync.Bus { return &plug{w, region} }

type plug struct {
	wire   *wire
	region string
}

func (p *plug) Publish(subject string, data []byte, header ...meshsync.Field) error {
	asked, digest := strings.CutPrefix(subject, meshsync.SubjectSnapshot)
	for name, inbox := range p.wire.inboxes {
		if !digest || name == asked {
			inbox <- meshsync.Message{Subject: subject, Data: data, Header: header}
		}
	}
	return nil
}

func (p *plug) Messages() <-chan meshsync.Message { return p.wire.inboxes[p.region] }
func (p *plug) Gaps() <-chan struct{}             { return nil }
func (p *plug) Drops() <-chan struct{}            { return nil }

// received takes what has arrived at a bus so far: up to a mark of its own, which
// no cut takes.
func (w *wire) received(b *demo.Bus, region string) []string {
	const mark = "mark"
	w.inboxes[region] <- meshsync.Message{Subject: meshsync.SubjectHeartbeat + region, Data: []byte(mark)}
	var got []string
	for m := range b.Messages() {
		if string(m.Data) == mark {
			break
		}
		got = append(got, string(m.Data))
	}
	return got
}

// TestBusDeliversWhatNoCutTakes holds the buses to the plainest account of a cut:
// a message from a arrives at b when a is b, or when neither is cut off.
func TestBusDeliversWhatNoCutTakes(t *testing.T) {
	regions := demo.Regions()
	rapid.Check(t, func(t *rapid.T) {
		w, cuts := newWire(), demo.NewCuts(regions)
		buses := map[string]*demo.Bus{}
		ctx, cancel := context.WithCancel(context.Background())
		var running sync.WaitGroup
		defer running.Wait()
		defer cancel()
		for _, name := range regions {
			b := cuts.Bus(name, w.of(name))
			buses[name] = b
			running.Go(func() { _ = b.Run(ctx) }) // it has no error to give
		}
		off := map[string]bool{}
		for range rapid.IntRange(1, 30).Draw(t, "steps") {
			from := rapid.SampledFrom(regions).Draw(t, "region")
			step := rapid.SampledFrom([]string{"cut", "heal", meshsync.SubjectUsage, meshsync.SubjectHeartbeat, meshsync.SubjectSnapshot}).Draw(t, "step")
			if step == "cut" || step == "heal" {
				changed, err := cuts.Set(from, step == "cut")
				if err != nil || changed == (off[from] == (step == "cut")) {
					t.Fatalf("%s %s: changed %v, %v; it was cut: %v", step, from, changed, err, off[from])
				}
				off[from] = step == "cut"
				continue
			}
			about, audience := from, regions
			if step == meshsync.SubjectSnapshot {
				about = rapid.SampledFrom(regions).Draw(t, "asked")
				audience = []string{about}
			}
			if err := buses[from].Publish(step+about, []byte(from)); err != nil {
				t.Fatal(err)
			}
			for _, to := range regions {
				// A process hears itself or not: nothing depends on it.
				got := slices.DeleteFunc(w.received(buses[to], to), func(string) bool { return to == from })
				want := to != from && slices.Contains(audience, to) && !off[from] && !off[to]
				if (len(got) == 1) != want {
					t.Fatalf("%s%s from %s with %v cut: %s received %v, want it: %v", step, about, from, cuts.Off(), to, got, want)
				}
			}
		}
	})
}
