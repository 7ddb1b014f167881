package sync_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/regiond/regiond/quota"
	meshsync "github.com/regiond/regiond/sync"
	"github.com/regiond/regiond/sync/wire"
	"github.com/regiond/regiond/test/meshtest"
)

// What is too large for one message is published in several: changes, a snapshot, and what
// fills a gap.
func TestTooLargeIsDivided(t *testing.T) {
	meet(t, func(w *world, eu, us, _ *node) {
		eu.bus.SetLimit(8 << 10)
		for i := range 5_000 {
			eu.counters.Admit(int64(1+i), eu.cell(uint64(i)))
		}
		sleep(2*time.Second + oneWay)
		if got, want := us.counters.Of("eu"), eu.counters.Of("eu"); !maps.Equal(got, want) {
			t.Errorf("of changes us has %d of %d", len(got), len(want))
		}
		b := w.join("us", "b", 20, 0)
		sleep(15 * time.Second)
		if p := b.knows(eu); !p.Synced || !maps.Equal(b.counters.Of("eu"), eu.counters.Of("eu")) {
			t.Errorf("of a snapshot us/b has %d of %d: %+v", len(b.counters.Of("eu")), len(eu.counters.Of("eu")), p)
		}
		w.net.Set("eu", "us", meshtest.Link{Cut: true})
		eu.admit(5_000, 7)
		sleep(meshsync.TickEvery)
		w.net.Set("eu", "us", meshtest.Link{Latency: oneWay})
		sleep(20 * time.Second)
		if got, want := us.counters.Of("eu"), eu.counters.Of("eu"); !maps.Equal(got, want) {
			t.Errorf("of what fills a gap us has %d of %d, or other units", len(got), len(want))
		}
		if n := eu.counter("regiond.sync.publish_errors"); n != 0 {
			t.Errorf("%d messages counted as refused", n)
		}
		if n := len(eu.log.Lines("the bus takes no messages; peers receive nothing from this process")); n != 0 {
			t.Errorf("logged %d times that the bus takes no messages", n)
		}
	})
}

// A counter that is too large by itself is dropped and counted, and peers know that something
// is missing; all others are published.
func TestTooLargeCounterIsDropped(t *testing.T) {
	meet(t, func(w *world, eu, us, _ *node) {
		eu.bus.SetLimit(250)
		large := eu.cell(50)
		large.Limit = strings.Repeat("x", 300)
		small := map[meshtest.Cell]int64{}
		for i := range 100 {
			small[eu.cell(uint64(i))] = 3
			eu.counters.Admit(3, eu.cell(uint64(i)))
		}
		eu.counters.Admit(3, large)
		sleep(2*time.Second + oneWay)
		if got := us.counters.Of("eu"); !maps.Equal(got, small) {
			t.Errorf("of changes us has %d of %d", len(got), len(small))
		}
		if n := eu.counter("regiond.sync.publish_errors"); n == 0 {
			t.Error("what was dropped is not counted")
		}
		b := w.join("us", "b", 20, 0)
		sleep(5 * time.Second)
		eu.counters.Admit(1, eu.cell(1)) // heartbeats are too large as well
		small[eu.cell(1)]++
		sleep(2 * time.Second)
		if us.knows(eu).MissingSince == 0 {
			t.Errorf("nothing is missing: %+v", us.knows(eu))
		}
		if p := b.knows(eu); p.Synced || !maps.Equal(b.counters.Of("eu"), small) {
			t.Errorf("of a snapshot us/b has %d of %d: %+v", len(b.counters.Of("eu")), len(small), p)
		}
	})
}

// Many that request at once are all answered, by a bus that takes small messages.
func TestManyAnswersFitSmallMessages(t *testing.T) {
	meet(t, func(w *world, eu, _, _ *node) {
		eu.bus.SetLimit(8 << 10)
		for i := range uint64(1_780) { // the last message is full
			eu.counters.Admit(int64(1+i), eu.cell(i*0x9e3779b97f4a7c15))
		}
		sleep(2 * time.Second)
		b := w.join("us", "b", 20, 0)
		names := rand.New(rand.NewPCG(1, 2))
		var others []wire.SnapshotRequest
		for i := range 150 {
			name := fmt.Sprintf("regiond-%016x-%016x-%016x", names.Uint64(), names.Uint64(), names.Uint64())
			others = append(others, wire.SnapshotRequest{From: quota.Process{Region: "us", Instance: name, Boot: 30 + int64(i)}, To: eu.self})
		}
		for range 100 {
			for i := range others {
				others[i].Request++
				eu.inject(meshsync.SubjectSnapshot+"eu", wire.Append(nil, &others[i]))
			}
			sleep(100 * time.Millisecond)
		}
		if p := b.knows(eu); !p.Synced || !maps.Equal(b.counters.Of("eu"), eu.counters.Of("eu")) {
			t.Errorf("us/b has %d of %d: %+v", len(b.counters.Of("eu")), len(eu.counters.Of("eu")), p)
		}
	})
}

// What waited for a bus that returns with a smaller limit is published, also by a process that
// leaves at once.
func TestLeftoverIsDividedAnew(t *testing.T) {
	meet(t, func(_ *world, eu, us, _ *node) {
		eu.bus.Down()
		for i := range uint64(3_000) {
			eu.counters.Admit(int64(1+i), eu.cell(i*0x9e3779b97f4a7c15))
		}
		sleep(300 * time.Millisecond)
		eu.bus.SetLimit(8 << 10)
		eu.bus.Up()
		eu.stop()
		sleep(time.Second)
		if got, want := us.counters.Of("eu"), eu.counters.Of("eu"); !maps.Equal(got, want) {
			t.Errorf("us has %d of %d", len(got), len(want))
		}
	})
}
