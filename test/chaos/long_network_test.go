//go:build chaos && chaoslong && linux

package chaos_test

import (
	"testing"
	"time"

	"github.com/regiond/regiond/test/chaos"
	"github.com/regiond/regiond/test/chaos/traffic"
)

func TestLongBus(t *testing.T) {
	once(t, []scenario{
		// Messages come back when their content has long left the window, and after newer ones.
		{"NATSReplayedLate", chaos.Scenario{
			Profile: traffic.HotTenant(), Fault: func(w *chaos.World) chaos.Fault { return w.DuplicateNATS(eu, 3*chaos.HotWindow) },
			Lasts: 18 * time.Second, Unmoved: chaos.Names(),
		}},
		{"NATSDenied", chaos.Scenario{
			Fault: func(w *chaos.World) chaos.Fault { return w.DenyNATS(us) },
			Lasts: 5 * time.Second, Notice: within(chaos.NoticeOneWay, eu, us, ap), Again: chaos.AgainRedialled,
		}},
		// Four megabytes a second of messages that every region refuses.
		{"NATSFlooded", chaos.Scenario{
			Fault: func(w *chaos.World) chaos.Fault { return w.FloodNATS(eu, 4<<20) },
			Lasts: 6 * time.Second, Again: chaos.AgainRedialled, Repeats: true,
		}},
		// regiond reads nothing while it is sent a lot: its NATS buffers what fits and
		// then drops the connection.
		{"NATSSlowConsumer", chaos.Scenario{
			Fault: func(w *chaos.World) chaos.Fault {
				return chaos.Both(w.Freeze(chaos.Regiond, us), w.FloodNATS(us, 4<<20))
			},
			Lasts: 8 * time.Second, Notice: within(chaos.NoticeSilence, eu, ap), Again: chaos.AgainRedialled, Down: []string{us},
		}},
	})
}

func TestLongLines(t *testing.T) {
	once(t, []scenario{
		{"UDPGone", chaos.Scenario{
			Fault: func(w *chaos.World) chaos.Fault { return w.LoseUDP(1) },
			Lasts: time.Minute, Unmoved: chaos.Names(),
		}},
		// The bus is gone while gossip reports every region as alive.
		{"BusGoneGossipAlive", chaos.Scenario{
			Fault: func(w *chaos.World) chaos.Fault { return w.CutBus() },
			Lasts: 5 * time.Second, Notice: within(chaos.NoticeSilence, eu, us, ap), Again: chaos.AgainRedialled,
		}},
		{"BusOneWay", chaos.Scenario{
			Profile: traffic.Mixed(), Fault: func(w *chaos.World) chaos.Fault { return w.CutBusOneWay(eu, us) },
			Lasts: 5 * time.Second, Notice: within(chaos.NoticeOneWay, eu, us), Again: chaos.AgainRedialled,
		}},
		// Over UDP and TCP, for so long that members are called dead.
		{"GossipGone", chaos.Scenario{
			Fault: func(w *chaos.World) chaos.Fault { return w.CutGossip() },
			Lasts: 20 * time.Second, Unmoved: chaos.Names(),
		}},
		{"PartitionRing", chaos.Scenario{
			Profile: traffic.HotTenant(), Fault: func(w *chaos.World) chaos.Fault { return w.CutRing() },
			Lasts: 8 * time.Second, Notice: within(chaos.NoticeOneWay, eu, us, ap), Again: chaos.AgainRedialled, Groups: []chaos.Group{parts(eu), parts(us), parts(ap)},
		}},
		// Small packets pass, so detection depends on the size of messages.
		{"MTUBlackHole", chaos.Scenario{
			Fault: func(w *chaos.World) chaos.Fault { return w.Narrow(600) },
			Lasts: 8 * time.Second, Again: chaos.AgainRedialled, Repeats: true,
		}},
		{"AsymmetricDelay", chaos.Scenario{
			Profile: traffic.HotTenant(),
			Fault:   func(w *chaos.World) chaos.Fault { return w.Lopsided(eu, us, 300*time.Millisecond, 2*time.Millisecond) },
			Lasts:   8 * time.Second, Unmoved: chaos.Names(),
		}},
	})
}

// TestCallers: what callers do to one region must not affect the others and its own
// customers.
func TestCallers(t *testing.T) {
	for name, fault := range map[string]func(w *chaos.World) chaos.Fault{
		"Slow":        func(w *chaos.World) chaos.Fault { return w.SlowCallers(us, 400) },
		"Churn":       func(w *chaos.World) chaos.Fault { return w.Churn(us, 300) },
		"NewTenants":  func(w *chaos.World) chaos.Fault { return w.NewTenants(us, 1000) },
		"HotTenant":   func(w *chaos.World) chaos.Fault { return w.HotTenant(us, 1000) },
		"BadRequests": func(w *chaos.World) chaos.Fault { return w.BadRequests(us) },
	} {
		t.Run(name, usual(chaos.Scenario{
			Fault: fault,
			Lasts: 8 * time.Second, Unmoved: chaos.Names(),
		}).Once)
	}
}
