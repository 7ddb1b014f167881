package limiter

import (
	"context"
	"testing"

	"github.com/regiond/regiond/test/redisserver"
)

// slowFleet is a nodeSet of one whose servers take all the time there is to tell who
// they are, as a cluster does that asks a node first from which nothing comes back.
type slowFleet struct{ single }

func (f slowFleet) refresh(ctx context.Context) ([]*node, error) {
	<-ctx.Done()
	return f.current(), nil
}

// Servers are not called dead because another has used up the prober's time: each is
// judged by what it answers itself.
func TestProbeHasItsOwnTime(t *testing.T) {
	srv := redisserver.Start(t, redisserver.Options{})
	s := newTestRedis(t, srv.Addr(), nil)
	s.nodeSet = slowFleet{s.nodeSet.(single)}
	probes := 0
	for s.probe(context.Background()); !s.Available(); s.probe(context.Background()) {
		if probes++; probes == 20 { // a busy machine may be late for some of them
			t.Fatal("a server that is well was called dead by each of 20 probes")
		}
	}
	srv.Kill()
	if s.probe(context.Background()); s.Available() {
		t.Error("a server that is dead was not called so")
	}
}
