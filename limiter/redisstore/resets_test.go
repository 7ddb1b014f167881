package redisstore

import (
	"context"
	"testing"

	"github.com/regiond/regiond/test/redisserver"
)

// A reset by one process shows in another's Resets with the next probe, and
// in its own at once; nothing else changes the number.
func TestResetsShowInEveryProcess(t *testing.T) {
	srv := redisserver.Start(t, redisserver.Options{})
	resetsShow(t, Options{Addrs: []string{srv.Addr()}})
}

func resetsShow(t *testing.T, o Options) {
	ctx := context.Background()
	a, _ := nodeSetStore(t, o)
	b, _ := nodeSetStore(t, o)
	read := func() int64 {
		t.Helper()
		b.readResets(ctx)
		return b.Resets()
	}
	seen := map[int64]bool{read(): true}
	for range 3 {
		if err := a.Reset(ctx, "acme"); err != nil {
			t.Fatal(err)
		}
		mine := a.Resets()
		if seen[mine] {
			t.Errorf("a reset left the number at %d", mine)
		}
		for range 2 {
			if got := read(); got != mine {
				t.Errorf("the other process reads %d, want %d", got, mine)
			}
		}
		seen[mine] = true
	}
}
