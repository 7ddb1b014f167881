package redisserver_test

import (
	"context"
	"testing"
	"time"

	"github.com/regiond/regiond/test/redisserver"
)

// A cluster is whole when it is handed out, a slot moves with its keys, and a
// replica takes over from a primary that dies.
func TestCluster(t *testing.T) {
	ctx := context.Background()
	c := redisserver.StartCluster(t, time.Second)
	slot := c.Slot("{acme}")
	from := c.Primary(slot)
	to := c.Primary((slot + 16384/3) % 16384)
	if from == nil || to == nil || from == to {
		t.Fatalf("primaries %v and %v", from, to)
	}
	if err := from.Client().Set(ctx, "{acme}k", "v", 0).Err(); err != nil {
		t.Fatal(err)
	}
	c.Begin(slot, from, to)
	if n := c.MoveKeys(slot, 10, from, to); n != 1 {
		t.Errorf("%d keys moved, want 1", n)
	}
	c.End(slot, to)
	if v := to.Client().Get(ctx, "{acme}k").Val(); v != "v" || c.Primary(slot) != to {
		t.Errorf("the new owner has %q", v)
	}
	heir := c.Replica(to)
	to.Kill()
	if now := c.AwaitPrimary(slot, to); now != heir {
		t.Errorf("%v took over, want the replica", now.Addr())
	}
}

// Sentinels make the replica primary when the primary dies.
func TestWatched(t *testing.T) {
	w := redisserver.StartWatched(t, time.Second)
	old := w.Primary()
	if old != w.Servers[0] {
		t.Fatal("the sentinels do not name the primary")
	}
	old.Kill()
	if now := w.AwaitPrimary(old); now != w.Servers[1] {
		t.Errorf("%s took over, want the replica", now.Addr())
	}
}
