package clock_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/regiond/regiond/clock"
)

// peerWorld is two stores' clocks, the path between them, and the local
// monotonic clock that the estimator sees. One seed is one history.
type peerWorld struct {
	rng          *rand.Rand
	local        time.Duration
	ours, theirs float64 // stores' clocks since the epoch, ns
	moved        time.Duration
	ourPPM       float64
	theirPPM     float64
	path         path
}

func (w *peerWorld) pass(d time.Duration) {
	w.local += d
	w.ours += float64(d) * (1 + w.ourPPM/1e6)
	w.theirs += float64(d) * (1 + w.theirPPM/1e6)
}

func (w *peerWorld) offset() time.Duration {
	return w.moved + time.Duration(math.Round(w.theirs-w.ours))
}

func (w *peerWorld) ourUS() int64 { return epochUS + int64(math.Floor(w.ours/1e3)) }

func (w *peerWorld) theirUS() int64 {
	return epochUS + int64(math.Floor((w.theirs+float64(w.moved))/1e3))
}

// exchange asks the peer, which answers with its next beat, and returns the times.
func (w *peerWorld) exchange() (t1, t2, t3, t4 int64) {
	out, back := w.path(w.rng)
	t1 = w.ourUS()
	w.pass(out)
	t2 = w.theirUS()
	w.pass(between(w.rng, 0, 500*ms))
	t3 = w.theirUS()
	w.pass(back)
	return t1, t2, t3, w.ourUS()
}

func eachPeerWorld(t *testing.T, run func(t *testing.T, w *peerWorld, p *clock.PeerOffsets)) {
	for _, sc := range []struct {
		name             string
		path             path
		ourPPM, theirPPM float64
		start            time.Duration
	}{
		{name: "lan", path: lan},
		{name: "lan, apart", path: lan, ourPPM: -500, theirPPM: 500, start: time.Hour},
		{name: "slow", path: slow, ourPPM: 500, theirPPM: -500, start: -time.Hour},
		{name: "asymmetric", path: asymmetric, theirPPM: 40, start: 900 * ms},
		{name: "stalling", path: stalling, ourPPM: 500, theirPPM: 500, start: -ms},
	} {
		t.Run(sc.name, func(t *testing.T) {
			t.Parallel()
			for seed := range uint64(4) {
				w := &peerWorld{
					rng: rand.New(rand.NewPCG(seed, 4)), path: sc.path,
					ourPPM: sc.ourPPM, theirPPM: sc.theirPPM, theirs: float64(sc.start),
				}
				p, err := clock.NewPeerOffsets(clock.Options{Now: func() time.Duration { return w.local }})
				if err != nil {
					t.Fatal(err)
				}
				run(t, w, p)
				if t.Failed() {
					t.Fatalf("seed %d", seed)
				}
			}
		})
	}
}

func wrong(w *peerWorld, got clock.PeerOffset) time.Duration {
	return (got.Offset - w.offset()).Abs() - got.Uncertainty
}

// TestPeerOffsetIsTrue: while no clock is moved the truth is always within the uncertainty, however much the clocks drift
// and however asymmetric the path is, and each exchange leaves no more uncertainty than its own delay does.
func TestPeerOffsetIsTrue(t *testing.T) {
	eachPeerWorld(t, func(t *testing.T, w *peerWorld, p *clock.PeerOffsets) {
		for i := range 2000 {
			t1, t2, t3, t4 := w.exchange()
			if err := p.Observe("us-east", t1, t2, t3, t4); err != nil {
				t.Fatal(err)
			}
			got := p.Peers()[0]
			if by := wrong(w, got); by > 0 || got.Age != 0 || got.Peer != "us-east" {
				t.Fatalf("after exchange %d: %+v is wrong by %v, truth %v", i, got, by, w.offset())
			}
			if most := time.Duration((t4-t1)-(t3-t2))*us/2 + 2*ms; got.Uncertainty > most {
				t.Fatalf("after exchange %d: %+v, want at most ± %v", i, got, most)
			}
			w.pass(between(w.rng, 0, 2*s))
			if by := wrong(w, p.Peers()[0]); by > 0 {
				t.Fatalf("later: wrong by %v", by)
			}
		}
	})
}

// Whatever four numbers come in: an error or an offset within bounds.
func TestPeerOffsetOfAnything(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p, err := clock.NewPeerOffsets(clock.Options{Now: func() time.Duration { return 0 }})
		if err != nil {
			t.Fatal(err)
		}
		stamp := rapid.OneOf(rapid.Int64(), rapid.Int64Range(epochUS, epochUS+1000), rapid.Int64Range(0, 1<<52))
		for range 10 {
			t1, t2, t3, t4 := stamp.Draw(t, "t1"), stamp.Draw(t, "t2"), stamp.Draw(t, "t3"), stamp.Draw(t, "t4")
			before := fmt.Sprint(p.Peers())
			if p.Observe("x", t1, t2, t3, t4) != nil {
				if after := fmt.Sprint(p.Peers()); after != before {
					t.Fatalf("an error has changed %s to %s", before, after)
				}
				continue
			}
			if t1 > t4 || t2 > t3 || t1 < 0 || t2 < 0 {
				t.Fatal("accepted as an exchange")
			}
			if got := p.Peers()[0]; got.Uncertainty <= 0 || got.Uncertainty > 1<<61 || got.Offset.Abs() > 1<<62 {
				t.Fatalf("%+v", got)
			}
		}
	})
}

func TestPeerOffsetLedger(t *testing.T) {
	registry, provider := newRegistry(t)
	var now time.Duration
	log := &logLines{}
	p, err := clock.NewPeerOffsets(clock.Options{
		Now: func() time.Duration { return now }, Logger: log.logger(), Meter: provider.Meter("clock"),
	})
	if err != nil {
		t.Fatal(err)
	}
	const far = `level=WARN msg="a peer region's clock is far from ours: check time synchronization on both Redis hosts" peer=us-east `
	for i, row := range []struct {
		at             time.Duration
		t2, t3, t4     time.Duration // after t1
		offset, within time.Duration
		log            string
	}{
		// 60 to 140 ms ahead; 1 µs and 1,000 ppm of 90 ms more either way.
		{at: 0, t2: 140 * ms, t3: 150 * ms, t4: 90 * ms, offset: 100 * ms, within: 40*ms + 91*us},
		// A quick one: 99 to 101.
		{at: s, t2: 101 * ms, t3: 101 * ms, t4: 2 * ms, offset: 100 * ms, within: ms + 3*us},
		// A slow one adds nothing; a second has added a millisecond of drift.
		{at: 2 * s, t2: 200 * ms, t3: 200 * ms, t4: 200 * ms, offset: 100 * ms, within: 2*ms + 3*us},
		// A second further, at once; but it may be less than a second, so no alarm.
		{at: 2500 * ms, t2: 1300 * ms, t3: 1300 * ms, t4: 400 * ms, offset: 1100 * ms, within: 200*ms + 401*us},
		// Two seconds further: an alarm.
		{
			at: 3 * s, t2: 2101 * ms, t3: 2101 * ms, t4: 2 * ms, offset: 2100 * ms, within: ms + 3*us,
			log: far + "offset=2.1s uncertainty=1.003ms\n",
		},
		{at: 4 * s, t2: 2101 * ms, t3: 2101 * ms, t4: 2 * ms, offset: 2100 * ms, within: ms + 3*us},
		// Perhaps within a second again, perhaps not: nothing is logged.
		{at: 5 * s, t2: 1001 * ms, t3: 1001 * ms, t4: 2 * ms, offset: 1000 * ms, within: ms + 3*us},
		{
			at: 6 * s, t2: 900 * ms, t3: 900 * ms, t4: 2 * ms, offset: 899 * ms, within: ms + 3*us,
			log: `level=INFO msg="a peer region's clock is close to ours again" peer=us-east offset=899ms uncertainty=1.003ms` + "\n",
		},
	} {
		now = row.at
		const t1 = epochUS
		if err := p.Observe("us-east", t1, t1+row.t2.Microseconds(), t1+row.t3.Microseconds(), t1+row.t4.Microseconds()); err != nil {
			t.Fatal(err)
		}
		want := clock.PeerOffset{
			Peer: "us-east", Offset: row.offset, Uncertainty: row.within, Alarm: i >= 4 && i <= 6,
		}
		if got := p.Peers(); len(got) != 1 || got[0] != want {
			t.Errorf("row %d: %+v, want %+v", i, got, want)
		}
		wantLog(t, log, row.log)
	}
	const line = `regiond_clock_peer_offset_seconds{region="us-east"} 0.899` + "\n"
	wantScrape(t, registry, "while exchanges come in", line)
	now += 61 * s
	if got := p.Peers()[0]; got.Age != 61*s || got.Uncertainty != ms+3*us+61*ms {
		t.Errorf("a minute later: %+v", got)
	}
	wantScrape(t, registry, "a minute without an exchange", "")
}

// Two exchanges of which one allows less than 2 µs and the other only more than
// 2 µs have nothing in common: a clock was moved, and only the newest counts.
func TestExchangesThatOnlyTouch(t *testing.T) {
	p, err := clock.NewPeerOffsets(clock.Options{Now: func() time.Duration { return 0 }})
	if err != nil {
		t.Fatal(err)
	}
	const e = epochUS
	for _, row := range []struct {
		ahead int64
		want  clock.PeerOffset
	}{
		{0, clock.PeerOffset{Peer: "x", Uncertainty: us}},
		{1, clock.PeerOffset{Peer: "x", Offset: 500, Uncertainty: 500}},
		{2, clock.PeerOffset{Peer: "x", Offset: 2 * us, Uncertainty: us}},
	} {
		if err := p.Observe("x", e, e+row.ahead, e+row.ahead, e); err != nil {
			t.Fatal(err)
		}
		if got := p.Peers()[0]; got != row.want {
			t.Errorf("%d µs ahead: %+v, want %+v", row.ahead, got, row.want)
		}
	}
}

func TestExchangesThatAreRefused(t *testing.T) {
	p, err := clock.NewPeerOffsets(clock.Options{})
	if err != nil {
		t.Fatal(err)
	}
	const e = epochUS
	for want, at := range map[string][4]int64{
		"is -1 µs":                        {-1, e, e, e},
		"between the years 1970 and 2112": {e, e, 1<<52 + 1, e},
		"a clock went back during it":     {e + 1, e, e, e},
		"went back during it":             {e, e + 1, e, e},
		"took 500 µs to answer, but the whole exchange only 100": {e, e, e + 500, e + 100},
		// Times cut off to whole µs: more than 1 µs there, less than 1 µs in all.
		"took 2 µs to answer, but the whole exchange only 0": {e, e, e + 2, e},
	} {
		if err := p.Observe("us-east", at[0], at[1], at[2], at[3]); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: %v, want %q", at, err, want)
		}
	}
}
