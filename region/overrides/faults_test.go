package overrides

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/regiond/regiond/quota"
)

// TestSentAgain: an edit that was kept and whose answer failed is in force once it was sent again, wherever that arrives,
// and in the siblings soon; also if it is refused then, since it wants there to be none.
func TestSentAgain(t *testing.T) {
	for _, row := range []struct {
		sibling, ifNone bool // where it is sent again, and how
	}{{false, false}, {true, false}, {false, true}, {true, true}} {
		s := newStore()
		first, second, third := alone(t, s, nowUS), alone(t, s, nowUS), alone(t, s, nowUS)
		for _, p := range []*follower{first, second, third} {
			for p.step(t.Context()); p.left > 0; {
				p.step(t.Context())
			}
		}
		if !row.sibling {
			second = first
		}
		e := quota.Edit{Override: l("a", 7), IfNone: row.ifNone}
		first.keeper = &faulty{s, fail("announce", always)} // edits are kept, and nobody learns of them
		if _, err := first.Edit(t.Context(), e); err == nil {
			t.Fatal("the first edit has no error")
		}
		first.keeper = s
		if r, err := second.Edit(t.Context(), e); err != nil || r.Refused != row.ifNone {
			t.Fatalf("%+v: %+v, %v", row, r, err)
		}
		third.step(t.Context())
		for name, p := range map[string]*follower{"the process": second, "another sibling": third} {
			if o, err := p.Of(t.Context(), "a"); err != nil || o.Describe() != "l 7" {
				t.Errorf("%+v: %s has %s, %v", row, name, o.Describe(), err)
			}
		}
	}
}

// TestSlowRedisIsLoaded: each question to Redis has its time, and not all of a slice together: a slow Redis with many is
// read too.
func TestSlowRedisIsLoaded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const pages = 2_000_000 / sliceCount / scanStep
		v, err := New(Options{
			Region: "eu", TimeUS: func() int64 { return nowUS }, Now: time.Now, Logger: slog.New(slog.DiscardHandler),
			Eval: func(ctx context.Context, script, _ string, args ...any) (any, error) {
				select {
				case <-ctx.Done():
					return nil, ctx.Err()
				case <-time.After(30 * time.Millisecond):
				}
				if script != scanScript {
					return []any{}, nil
				}
				var cursor int
				if _, err := fmt.Sscan(args[0].(string), &cursor); err != nil {
					return nil, err
				}
				return []any{fmt.Sprint((cursor + 1) % pages), []any{}}, nil
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		f := follower{Overlay: v, at: -1}
		for began := time.Now(); !v.loaded.Load(); time.Sleep(f.step(t.Context())) {
			if time.Since(began) > 10*time.Minute {
				t.Fatalf("after ten minutes it has read %d slices of %d", f.slice, sliceCount)
			}
		}
	})
}

// TestAtTheCap: a region that has no room takes in what needs none: what is known with less, or as much, and what it has already.
func TestAtTheCap(t *testing.T) {
	p := alone(t, newStore(), nowUS)
	known := l("a", 900)
	known.Policy, known.Version = "p", quota.OverrideVersion{Counter: 1, WallUS: nowUS, Region: "us"}
	if err := p.mergeOne(t.Context(), "us", &known); err != nil {
		t.Fatal(err)
	}
	p.table.bytes.Store(maxBytes)
	if err := p.mergeOne(t.Context(), "us", &known); err != nil {
		t.Errorf("what it has already: %v", err)
	}
	suspended := l("a", 0)
	suspended.Policy, suspended.Version = "p", known.Version.Next(nowUS, "us")
	if err := p.mergeOne(t.Context(), "us", &suspended); err != nil {
		t.Errorf("a suspension of a known tenant: %v", err)
	}
	p.table.bytes.Store(maxBytes)
	deleted := quota.Override{Tenant: "a", Deleted: true, By: "x", Version: suspended.Version.Next(nowUS, "us")}
	if err := p.mergeOne(t.Context(), "us", &deleted); err != nil {
		t.Errorf("a deletion: %v", err)
	}
}

// TestClockWasAhead: an edit that replaces one of a clock that was days ahead is taken in by other regions.
func TestClockWasAhead(t *testing.T) {
	s := newStore()
	ahead, p, peer := alone(t, s, nowUS+2*maxAhead.Microseconds()), alone(t, s, nowUS), alone(t, newStore(), nowUS)
	for _, f := range []*follower{ahead, p} {
		if _, err := f.Edit(t.Context(), quota.Edit{Override: l("a", f.o.TimeUS()%997)}); err != nil {
			t.Fatal(err)
		}
	}
	o, err := quota.ParseOverride("a", s.text("a"))
	if err != nil {
		t.Fatal(err)
	}
	if err := peer.mergeOne(t.Context(), "eu", o); err != nil {
		t.Errorf("the peer: %v", err)
	}
}

// TestNeverTheSame: regions that stay different, since one cannot take in what the other has, do not send it for ever.
func TestNeverTheSame(t *testing.T) {
	now := time.UnixMicro(nowUS)
	var all [2]*follower
	var queue []sent
	sentBytes := 0
	for i := range all {
		f := alone(t, newStore(), nowUS)
		f.o.Now, f.o.TimeUS = func() time.Time { return now }, func() int64 { return now.UnixMicro() }
		f.o.Region = fmt.Sprint("r", i)
		f.loaded.Store(true)
		f.Connect(Peers{
			Self: quota.Process{Region: f.o.Region, Boot: int64(i + 1)}, Regions: func() []string { return nil },
			Live: func() []quota.Process { return nil },
			Send: func(payload []byte) bool {
				queue = append(queue, sent{i, 1 - i, payload})
				if bytes.HasPrefix(payload, []byte("o ")) {
					sentBytes += len(payload)
				}
				return true
			},
		})
		all[i] = f
	}
	same, ahead := 0, l("ahead", 7)
	for i := 0; same < 100; i++ { // others of the slice travel with it
		o := invented(i)
		if sliceOf(o.Tenant) != sliceOf(ahead.Tenant) {
			continue
		}
		same++
		all[0].table.fold(o)
		all[1].table.fold(o)
	}
	ahead.Version = quota.OverrideVersion{Counter: 1, WallUS: nowUS + 3*maxAhead.Microseconds(), Region: "r0"}
	all[0].table.fold(&ahead)
	turn := func(seconds int) {
		for range seconds {
			now = now.Add(rootEvery)
			for _, f := range all {
				f.advertise()
			}
			for len(queue) > 0 {
				s := queue[0]
				queue = queue[1:]
				all[s.to].handle(t.Context(), received{all[s.from].peers.Self, s.payload})
			}
		}
	}
	once := 0
	for _, o := range all[0].table.of(sliceOf(ahead.Tenant)) {
		once += len(overrideLine(o.Tenant, o.Text()))
	}
	turn(600)
	if most := 2 * int(10*time.Minute/againMost+5); sentBytes > most*once { // by both
		t.Errorf("in ten minutes the slice of %d bytes was sent %d times", once, sentBytes/once)
	}
	// What comes meanwhile does not wait.
	var missed strings.Builder
	for i := range 20 {
		o := l(fmt.Sprint("later-", i), 3)
		o.Version = quota.OverrideVersion{Counter: 1, WallUS: now.UnixMicro(), Region: "r0"}
		all[0].table.fold(&o)
		if turn(2); all[1].table.get(o.Tenant) == nil {
			fmt.Fprintln(&missed, o.Tenant)
		}
	}
	if missed.Len() > 0 {
		t.Errorf("not there two seconds after the edit was lost:\n%s", missed.String())
	}
}

// TestLogIsCalm: a Redis that fails now and then, and a flood of versions of a holder of the key, do not fill the log.
func TestLogIsCalm(t *testing.T) {
	s := newStore()
	now := time.UnixMicro(nowUS)
	p := alone(t, s, nowUS)
	var log bytes.Buffer
	p.o.Logger, p.o.Now = slog.New(slog.NewTextHandler(&log, nil)), func() time.Time { return now }
	p.keeper = eachFifthScanFails(s)
	const minutes = 10
	for end := now.Add(minutes * time.Minute); now.Before(end); now = now.Add(followEvery) {
		p.step(t.Context())
	}
	if lines := strings.Count(log.String(), "from redis"); lines == 0 || lines > 12*minutes {
		t.Errorf("%d lines in %d minutes about a Redis of which some questions fail", lines, minutes)
	}
	log.Reset()
	for i := range 5000 {
		o := *invented(0)
		o.Version.WallUS += int64(i)
		if err := p.mergeOne(t.Context(), "us", &o); err != nil {
			t.Fatal(err)
		}
	}
	if lines := strings.Count(log.String(), "at the same time"); lines < 500 || lines > 1001 {
		t.Errorf("%d lines of 5000 invented edits", lines)
	}
}

// TestForgottenOnOneSide: a region that has forgotten what another one is about to is not different from it: each of many that end asks
// for nothing. What has not ended for so long, or is forgotten in the course of the day, still comes to a region without it.
func TestForgottenOnOneSide(t *testing.T) {
	day, kept := 24*time.Hour, quota.OverrideKept
	one, two := alone(t, newStore(), nowUS), alone(t, newStore(), nowUS)
	add := func(f *follower, tenant string, ended time.Duration, counter int64) *quota.Override {
		o := l(tenant, 7)
		o.Version = quota.OverrideVersion{Counter: counter, WallUS: nowUS - (2 * kept).Microseconds(), Region: "us"}
		if ended != 0 {
			o.ExpiresUS = nowUS - ended.Microseconds()
		}
		f.table.fold(&o)
		return &o
	}
	same := func() bool { return one.table.digests(nowUS) == two.table.digests(nowUS) }
	for _, ended := range []time.Duration{kept + time.Second, kept + day, kept + 5*time.Minute} {
		if o := add(one, "a", ended, 1); !same() {
			t.Errorf("what has ended %v ago and is forgotten by the other makes them different", ended)
		} else {
			one.table.forget(o)
		}
	}
	add(one, "b", 0, 1)
	add(two, "b", kept-time.Minute, 2)
	if same() {
		t.Error("a region with an older version that goes on is not different")
	}
	add(one, "b", kept-time.Minute, 2)
	add(one, "c", kept-day-time.Second, 1)
	if same() {
		t.Error("what has ended lately does not make them different")
	}
	add(two, "c", kept-day-time.Second, 1)
	if !same() {
		t.Error("they hold the same and are different")
	}
}
