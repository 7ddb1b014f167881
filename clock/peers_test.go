package clock_test

import (
	"fmt"
	"math"
	"testing"
	"time"

	"go.opentelemetry.io/otel/sdk/metric"
	"pgregory.net/rapid"

	"github.com/regiond/regiond/clock"
	"github.com/regiond/regiond/test/capture"
)

// TestPeerOffsetIsTrue: while no clock is moved the truth is always within the uncertainty, however much the clocks drift
// and however asymmetric the path is, and each exchange leaves no more uncertainty than its own delay does.
func TestPeerOffsetIsTrue(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var local time.Duration
		var ours, theirs float64 // stores' clocks since the epoch, ns
		rate := rapid.SampledFrom([]float64{-500, 0, 40, 500})
		ourPPM, theirPPM := rate.Draw(t, "ours"), rate.Draw(t, "theirs")
		theirs = float64(rapid.Int64Range(-int64(time.Hour), int64(time.Hour)).Draw(t, "ahead"))
		pass := func(what string, most time.Duration) {
			d := time.Duration(rapid.Int64Range(0, int64(most)).Draw(t, what))
			local += d
			ours += float64(d) * (1 + ourPPM/1e6)
			theirs += float64(d) * (1 + theirPPM/1e6)
		}
		micros := func(ns float64) int64 { return epochUS + int64(math.Floor(ns/1e3)) }
		p, err := clock.NewPeerOffsets(clock.Options{Now: func() time.Duration { return local }})
		if err != nil {
			t.Fatal(err)
		}
		wrong := func(when string) {
			got := p.Peers()[0]
			truth := time.Duration(theirs - ours)
			if (got.Offset - truth).Abs() > got.Uncertainty+us { // of the drift in what is cut off times, and by a clock that drifts
				t.Fatalf("%s: %+v, truth %v", when, got, truth)
			}
		}
		out := rapid.SampledFrom([]time.Duration{10 * us, 100 * us, 200 * ms}).Draw(t, "way there")
		for range rapid.IntRange(1, 50).Draw(t, "exchanges") {
			t1 := micros(ours)
			pass("there", out)
			t2 := micros(theirs)
			pass("held", 500*ms)
			t3 := micros(theirs)
			pass("back", 60*ms)
			t4 := micros(ours)
			if err := p.Observe("us-east", t1, t2, t3, t4); err != nil {
				t.Fatal(err)
			}
			wrong("after an exchange")
			got := p.Peers()[0]
			if most := time.Duration((t4-t1)-(t3-t2))*us/2 + 2*ms; got.Uncertainty > most || got.Age != 0 || got.Peer != "us-east" {
				t.Fatalf("%+v, want at most ± %v", got, most)
			}
			pass("later", 2*s)
			wrong("later")
		}
	})
}

// Whatever four numbers come in: an error, which says what is wrong and changes nothing, or an offset within bounds.
func TestPeerOffsetOfAnything(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p, err := clock.NewPeerOffsets(clock.Options{Now: func() time.Duration { return 0 }})
		if err != nil {
			t.Fatal(err)
		}
		stamp := rapid.OneOf(rapid.Int64(), rapid.Int64Range(epochUS, epochUS+10), rapid.Int64Range(0, 1<<52))
		for range 10 {
			t1, t2, t3, t4 := stamp.Draw(t, "t1"), stamp.Draw(t, "t2"), stamp.Draw(t, "t3"), stamp.Draw(t, "t4")
			before := fmt.Sprint(p.Peers())
			valid := min(t1, t2, t3, t4) >= 0 && max(t1, t2, t3, t4) <= 1<<52 && t1 <= t4 && t2 <= t3
			err := p.Observe("x", t1, t2, t3, t4)
			switch {
			case !valid && err == nil, valid && err == nil && (t3-t2)-(t4-t1) >= 2+(t4-t1+498)/499:
				t.Fatal("accepted as an exchange") // times are cut off to whole µs, and clocks drift
			case valid && err != nil && t3-t2 <= t4-t1:
				t.Fatalf("refused with %v", err)
			case err != nil:
				if after := fmt.Sprint(p.Peers()); after != before {
					t.Fatalf("an error has changed %s to %s", before, after)
				}
				continue
			}
			if got := p.Peers()[0]; got.Uncertainty <= 0 || got.Uncertainty > 1<<61 || got.Offset.Abs() > 1<<62 {
				t.Fatalf("%+v", got)
			}
		}
	})
}

func TestPeerOffsetLedger(t *testing.T) {
	reader := metric.NewManualReader()
	var now time.Duration
	log, logged := &capture.Log{}, ""
	p, err := clock.NewPeerOffsets(clock.Options{
		Now: func() time.Duration { return now }, Logger: logger(log), Meter: metric.NewMeterProvider(metric.WithReader(reader)).Meter("clock"),
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
		if logged += row.log; log.String() != logged {
			t.Errorf("after row %d it has logged\n%s, want\n%s", i, log, logged)
		}
	}
	if got := gauges(t, reader); got["regiond.clock.peer_offset us-east"] != 0.899 {
		t.Errorf("while exchanges come in the gauges are %v", got)
	}
	now += 61 * s
	if got := p.Peers()[0]; got.Age != 61*s || got.Uncertainty != ms+3*us+61*ms {
		t.Errorf("a minute later: %+v", got)
	}
	if got := gauges(t, reader); len(got) > 0 {
		t.Errorf("after a minute without an exchange the gauges are %v", got)
	}
}
