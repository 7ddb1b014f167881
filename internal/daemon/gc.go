package daemon

import (
	"context"
	"os"
	"runtime/debug"
	"runtime/metrics"
	"time"
)

// maxGarbage is how many bytes may lie about between two collections once the heap is
// larger than that. Go lets garbage grow to the size of what is in use: with a million
// partitions known that is a third of a gigabyte for nothing, since most of it are
// slices without pointers, which a collection does not look into. A regiond of usual
// size collects as often as any Go program.
const maxGarbage = 96 << 20

// gcPercent is the percentage of live bytes at which the next collection is due.
func gcPercent(live uint64) int {
	if live <= maxGarbage {
		return 100
	}
	return int(max(100*maxGarbage/live, 10))
}

// TuneGC sets the percentage anew as the heap grows and shrinks, until ctx
// ends. Who has set GOGC is obeyed; GOMEMLIMIT works beside it.
func TuneGC(ctx context.Context) {
	if os.Getenv("GOGC") != "" {
		return
	}
	live := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	now := gcPercent(0)
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
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
