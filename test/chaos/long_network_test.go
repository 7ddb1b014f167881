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
			World: world(), Profile: traffic.HotTenant(),
			Fault: func(w *chaos.World) chaos.Fault { return w.DuplicateNATS(eu, 3*chaos.HotWindow) },
			Lasts: 18 * time.Second, Modes: blind(), Unmoved: chaos.Names(), Again: chaos.Again,
		}},
		{"NATSDenied", chaos.Scenario{
			World: world(), Profile: traffic.Steady(),
			Fault: func(w *chaos.World) chaos.Fault { return w.DenyNATS(us) },
			Lasts: 5 * time.Second, Notice: within(chaos.NoticeOneWay, eu, us, ap), Modes: blind(), Again: chaos.AgainRedialled,
		}},
		// Four megabytes a second of messages that every region refuses.
		{"NATSFlooded", chaos.Scenario{
			World: world(), Profile: traffic.Steady(),
			Fault: func(w *chaos.World) chaos.Fault { return w.FloodNATS(eu, 4<<20) },
			Lasts: 6 * time.Second, Modes: blind(), Again: chaos.AgainRedialled, Repeats: true,
		}},
		// regiond reads nothing while it is sent a lot: its NATS buffers what fits and
		// then drops the connection.
		{"NATSSlowConsumer", chaos.Scenario{
			World: world(), Profile: traffic.Steady(),
			Fault: func(w *chaos.World) chaos.Fault { return chaos.Both(w.FreezeRegiond(us), w.FloodNATS(us, 4<<20)) },
			Lasts: 8 * time.Second, Notice: within(chaos.NoticeSilence, eu, ap), Modes: blind(), Again: chaos.AgainRedialled,
			Down: []string{us},
		}},
	})
}

func TestLongLines(t *testing.T) {
	once(t, []scenario{
		{"UDPGone", chaos.Scenario{
			World: world(), Profile: traffic.Steady(),
			Fault: func(w *chaos.World) chaos.Fault { return w.LoseUDP(1) },
			Lasts: time.Minute, Modes: blind(), Unmoved: chaos.Names(), Again: chaos.Again,
		}},
		// The bus is gone while gossip reports every region as alive.
		{"BusGoneGossipAlive", chaos.Scenario{
			World: world(), Profile: traffic.Steady(),
			Fault: func(w *chaos.World) chaos.Fault { return w.CutBus() },
			Lasts: 5 * time.Second, Notice: within(chaos.NoticeSilence, eu, us, ap), Modes: blind(), Again: chaos.AgainRedialled,
		}},
		{"BusOneWay", chaos.Scenario{
			World: world(), Profile: traffic.Mixed(),
			Fault: func(w *chaos.World) chaos.Fault { return w.CutBusOneWay(eu, us) },
			Lasts: 5 * time.Second, Notice: within(chaos.NoticeOneWay, eu, us), Modes: blind(), Again: chaos.AgainRedialled,
		}},
		// Over UDP and TCP, for so long that members are called dead.
		{"GossipGone", chaos.Scenario{
			World: world(), Profile: traffic.Steady(),
			Fault: func(w *chaos.World) chaos.Fault { return w.CutGossip() },
			Lasts: 20 * time.Second, Modes: blind(), Unmoved: chaos.Names(), Again: chaos.Again,
		}},
		{"PartitionRing", chaos.Scenario{
			World: world(), Profile: traffic.HotTenant(),
			Fault: func(w *chaos.World) chaos.Fault { return w.CutRing() },
			Lasts: 8 * time.Second, Notice: within(chaos.NoticeOneWay, eu, us, ap), Modes: blind(), Again: chaos.AgainRedialled,
			Groups: []chaos.Group{parts(eu), parts(us), parts(ap)},
		}},
		// Small packets pass, so detection depends on the size of messages.
		{"MTUBlackHole", chaos.Scenario{
			World: world(), Profile: traffic.Steady(),
			Fault: func(w *chaos.World) chaos.Fault { return w.Narrow(600) },
			Lasts: 8 * time.Second, Modes: blind(), Again: chaos.AgainRedialled, Repeats: true,
		}},
		{"AsymmetricDelay", chaos.Scenario{
			World: world(), Profile: traffic.HotTenant(),
			Fault: func(w *chaos.World) chaos.Fault {
				return w.Lopsided(eu, us, 300*time.Millisecond, 2*time.Millisecond)
			},
			Lasts: 8 * time.Second, Modes: blind(), Unmoved: chaos.Names(), Again: chaos.Again,
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
		t.Run(name, chaos.Scenario{
			World: world(), Profile: traffic.Steady(), Fault: fault,
			Lasts: 8 * time.Second, Modes: blind(), Unmoved: chaos.Names(), Again: chaos.Again,
		}.Once)
	}
}
