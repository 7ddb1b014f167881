package redisstore

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/regiond/regiond/limiter/limitertest"
	"github.com/regiond/regiond/test/redisserver"
)

// Every process of a region sees the same life, also one that starts later. A server that
// has lost its data, or went back, begins another, and each process counts that once.
func TestLife(t *testing.T) {
	t.Parallel() // it mostly waits for probes
	srv := redisserver.Start(t, redisserver.Options{})
	one, oneCounts := nodeSetStore(t, Options{Addrs: []string{srv.Addr()}})
	two, twoCounts := nodeSetStore(t, Options{Addrs: []string{srv.Addr()}})
	ctx := context.Background()
	probed := func(s *Store) {
		t.Helper()
		limitertest.Eventually(t, 10*time.Second, "the first probe", func() bool { return len(s.Lives()) == 1 })
	}
	probed(one)
	probed(two)
	first := one.Lives()
	if two.Lives()[0].ID != first[0].ID || time.Since(first[0].Start).Abs() > time.Minute {
		t.Fatalf("the lives are %+v and %+v", first, two.Lives())
	}
	known := map[int64]bool{first[0].ID: true}
	for i, row := range []struct {
		what string
		lose func() error
	}{
		{"flushed", func() error { return srv.Client().FlushAll(ctx).Err() }},
		{"gone back by some probes", func() error {
			was := one.Lives()[0]
			return srv.Client().Set(ctx, lifeKey, fmt.Sprintf("%d:%d:%d", was.ID, was.Start.UnixMicro(), max(0, was.Writes-10)), 0).Err()
		}},
		{"garbage", func() error { return srv.Client().Set(ctx, lifeKey, "?", 0).Err() }},
	} {
		confirmed(t, srv)
		if err := row.lose(); err != nil {
			t.Fatal(err)
		}
		limitertest.Eventually(t, 10*time.Second, row.what+": both see another life", func() bool {
			a, b := one.Lives()[0].ID, two.Lives()[0].ID
			return a == b && !known[a]
		})
		known[one.Lives()[0].ID] = true
		if a, b := oneCounts("regiond.redis.losses"), twoCounts("regiond.redis.losses"); a != int64(i+1) || b != int64(i+1) {
			t.Errorf("%s: %d and %d losses are counted, want %d", row.what, a, b, i+1)
		}
	}
	three, count := nodeSetStore(t, Options{Addrs: []string{srv.Addr()}})
	probed(three)
	if a, b := three.Lives()[0], one.Lives()[0]; a.ID != b.ID || a.Start != b.Start || count("regiond.redis.losses") != 0 {
		t.Errorf("a process that starts now sees %+v with %d losses, want %+v", a, count("regiond.redis.losses"), b)
	}
}
