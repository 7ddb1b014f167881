package daemon

import (
	"context"
	"os"
	"runtime/debug"
	"runtime/metrics"
	"time"
)

const (
	// maxGarbage is how many bytes may lie about between two collections once the heap is
	// larger than that. Go lets garbage grow to the size of what is in use: with a million
	// partitions known that is a third of a gigabyte for nothing, since most of it are
	// slices without pointers, which a collection does not look into.
	maxGarbage = 96 << 20
	// minGarbage is how many may lie about in any case. A regiond of usual size has less than that
	// in use. Under load Go would collect several times a second, for a tenth of its processor time.
	minGarbage = 24 << 20
)

// gcPercent is the percentage of live bytes at which the next collection is due.
func gcPercent(live uint64) int {
	live = max(live, 1<<20)
	return int(min(max(100, 100*minGarbage/live), max(100*maxGarbage/live, 10)))
}

// TuneGC sets the percentage anew as the heap grows and shrinks, until ctx
// ends. Who has set GOGC is obeyed; GOMEMLIMIT works beside it.
func TuneGC(ctx context.Context) {
	if os.Getenv("GOGC") != "" {
		return
	}
	live := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	now := 100
	tick := time.Tick(time.Second)
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick:
		}
		metrics.Read(live)
		want := gcPercent(live[0].Value.Uint64())
		// Setting it stops the program for a moment: not for a few percent.
		if want < now*9/10 || want > now*11/10 || (want == 100 && now != 100) {
			debug.SetGCPercent(want)
			now = want
		}
	}
}
