//go:build chaos && chaoslong && linux

package chaos_test

import (
	"testing"
	"time"

	"github.com/regiond/regiond/test/chaos"
	"github.com/regiond/regiond/test/chaos/traffic"
)

func TestUDPGone(t *testing.T) {
	chaos.Scenario{
		World: world(), Profile: traffic.Steady(),
		Fault: func(w *chaos.World) chaos.Fault { return w.LoseUDP(1) },
		Lasts: time.Minute, Modes: blind(), Unmoved: chaos.Names(), Again: chaos.Again,
	}.Once(t)
}

// The bus is gone while gossip says that everybody is alive.
func TestBusGoneGossipAlive(t *testing.T) {
	chaos.Scenario{
		World: world(), Profile: traffic.Steady(),
		Fault: func(w *chaos.World) chaos.Fault { return w.CutBus() },
		Lasts: 5 * time.Second, Notice: within(chaos.NoticeSilence, eu, us, ap), Modes: blind(), Again: chaos.AgainRedialled,
	}.Once(t)
}

func TestBusOneWay(t *testing.T) {
	chaos.Scenario{
		World: world(), Profile: traffic.Mixed(),
		Fault: func(w *chaos.World) chaos.Fault { return w.CutBusOneWay(eu, us) },
		Lasts: 5 * time.Second, Notice: within(chaos.NoticeOneWay, eu, us), Modes: blind(), Again: chaos.AgainRedialled,
	}.Once(t)
}

// Over UDP and TCP, for so long that members are called dead.
func TestGossipGone(t *testing.T) {
	chaos.Scenario{
		World: world(), Profile: traffic.Steady(),
		Fault: func(w *chaos.World) chaos.Fault { return w.CutGossip() },
		Lasts: 20 * time.Second, Modes: blind(), Unmoved: chaos.Names(), Again: chaos.Again,
	}.Once(t)
}

func TestPartitionRing(t *testing.T) {
	chaos.Scenario{
		World: world(), Profile: traffic.HotTenant(),
		Fault: func(w *chaos.World) chaos.Fault { return w.CutRing() },
		Lasts: 8 * time.Second, Notice: within(chaos.NoticeOneWay, eu, us, ap), Modes: blind(), Again: chaos.AgainRedialled,
		Groups: []chaos.Group{parts(eu), parts(us), parts(ap)},
	}.Once(t)
}

// Small packets pass: whether somebody notices depends on how much there is to say.
func TestMTUBlackHole(t *testing.T) {
	chaos.Scenario{
		World: world(), Profile: traffic.Steady(),
		Fault: func(w *chaos.World) chaos.Fault { return w.Narrow(600) },
		Lasts: 8 * time.Second, Modes: blind(), Again: chaos.AgainRedialled, Repeats: true,
	}.Once(t)
}

func TestAsymmetricDelay(t *testing.T) {
	chaos.Scenario{
		World: world(), Profile: traffic.HotTenant(),
		Fault: func(w *chaos.World) chaos.Fault {
			return w.Lopsided(eu, us, 300*time.Millisecond, 2*time.Millisecond)
		},
		Lasts: 8 * time.Second, Modes: blind(), Unmoved: chaos.Names(), Again: chaos.Again,
	}.Once(t)
}
