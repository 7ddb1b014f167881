package daemon

import (
	"context"
	"net"
	"testing"
	"time"

	"github.com/hashicorp/memberlist"

	"github.com/regiond/regiond/quota"
	meshsync "github.com/regiond/regiond/sync"
)

// TestWorldStuck: with a bus that takes no message and gives none back, and gossip
// that hangs in every call, a check does not take a moment of the world's time: it
// waits for none of them.
func TestWorldStuck(t *testing.T) {
	t.Parallel()
	inWorld(t, worldOf(600, time.Minute, ""), func(w *world) {
		over := make(chan struct{})
		for _, s := range w.regions {
			s.start("one", func(o *Options) {
				o.WrapBus = func(meshsync.Bus) meshsync.Bus { return stuckBus{over} }
				o.Transport = stuckTransport{o.Transport, over}
			})
		}
		defer close(over) // or they could not end
		asked := 0
		for _, after := range []time.Duration{0, time.Millisecond, time.Second, 10 * time.Second, time.Minute} {
			time.Sleep(after)
			for _, s := range w.regions {
				asked++ // of another tenant each time, and each time urgent
				began := time.Now()
				d := s.one().within(time.Minute, quota.Request{Tenant: tenantName(asked), Cost: 10, Explain: true})
				if took := time.Since(began); !d.Allowed || took != 0 {
					t.Errorf("%s, %v later: allowed %v, in %v", s.name, after, d.Allowed, took)
				}
				if d.Mode == quota.ModeGlobal {
					t.Errorf("%s, %v later: mode %v, with nobody heard", s.name, after, d.Mode)
				}
			}
		}
	})
}

// within is a check that is given up after a while.
func (p *node) within(most time.Duration, r quota.Request) quota.Decision {
	p.w.t.Helper()
	answer := make(chan quota.Outcome, 1)
	go func() {
		d, err := p.limiter.Check(context.Background(), r)
		answer <- quota.Outcome{Decision: d, Err: err}
	}()
	select {
	case o := <-answer:
		if o.Err != nil {
			p.w.t.Error(o.Err)
		}
		return o.Decision
	case <-time.After(most):
		p.w.t.Fatalf("%s: a check has no answer after %v", p.home.name, most)
		return quota.Decision{}
	}
}

// stuckBus blocks in Publish until all is over, and never delivers.
type stuckBus struct{ over chan struct{} }

func (b stuckBus) Publish(string, []byte, ...meshsync.Field) error {
	<-b.over
	return net.ErrClosed
}
func (b stuckBus) Limit() int                        { return 0 }
func (b stuckBus) Messages() <-chan meshsync.Message { return nil }
func (b stuckBus) Gaps() <-chan struct{}             { return nil }

// stuckTransport blocks in whatever gossip does with it.
type stuckTransport struct {
	memberlist.Transport
	over chan struct{}
}

func (s stuckTransport) WriteTo([]byte, string) (time.Time, error) {
	<-s.over
	return time.Time{}, net.ErrClosed
}

func (s stuckTransport) DialTimeout(string, time.Duration) (net.Conn, error) {
	<-s.over
	return nil, net.ErrClosed
}
