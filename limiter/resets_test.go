package limiter

import (
	"context"
	"testing"
	"time"

	"github.com/regiond/regiond/limiter/limitertest"
	"github.com/regiond/regiond/quota"
	"github.com/regiond/regiond/test/redisserver"
)

// A tenant who is denied everywhere, with a minute to wait, is admitted by every process
// within the second that passes between two readings of the time, once one has reset it.
func TestResetReachesOtherProcesses(t *testing.T) {
	ctx, srv := context.Background(), redisserver.Start(t, redisserver.Options{})
	var processes []*timedLimiter
	for range 2 {
		l := newTimedLimiter(t, srv)
		l.enforce(t, []quota.Limit{{Name: "minute", Units: 1, Window: time.Minute}})
		processes = append(processes, l)
	}
	a, b := processes[0], processes[1]
	a.ask(t, "acme", 1)
	for _, l := range processes {
		for _, basis := range []quota.Basis{quota.BasisExact, quota.BasisCached} {
			if d := l.ask(t, "acme", 1); d.Allowed || d.Basis != basis {
				t.Fatalf("allowed %v by %v, want a denial by %v", d.Allowed, d.Basis, basis)
			}
		}
	}
	read := time.NewTicker(time.Second) // as the tracker of a daemon does
	defer read.Stop()
	if err := a.Reset(ctx, "acme"); err != nil {
		t.Fatal(err)
	}
	if d := b.ask(t, "acme", 1); d.Allowed {
		t.Fatal("the other process does not know of the reset yet: it was not denied from memory")
	}
	took := limitertest.Eventually(t, 2*time.Second, "the other process admits", func() bool {
		select {
		case <-read.C:
			if _, err := b.store.TimeUS(ctx); err != nil {
				t.Error(err)
			}
		default:
		}
		return b.ask(t, "acme", 1).Allowed
	})
	t.Logf("admitted %v after the reset", took)
	if d := a.ask(t, "acme", 1); d.Allowed || d.Basis != quota.BasisExact {
		t.Errorf("who has reset it answers %v by %v, want a denial that redis gave", d.Allowed, d.Basis)
	}
}
