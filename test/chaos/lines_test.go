//go:build chaos && linux

package chaos_test

import (
	"testing"
	"time"

	"github.com/regiond/regiond/test/chaos"
	"github.com/regiond/regiond/test/chaos/traffic"
)

func TestPartitionWhole(t *testing.T) {
	chaos.Scenario{
		World: world(), Profile: traffic.HotTenant(),
		Fault: func(w *chaos.World) chaos.Fault { return w.Partition([]string{eu}, []string{us}, []string{ap}) },
		Lasts: 8 * time.Second, Notice: within(chaos.NoticeSilence, eu, us, ap), Modes: blind(), Again: chaos.AgainRedialled,
		Groups: []chaos.Group{parts(eu), parts(us), parts(ap)},
	}.Run(t)
}

func TestPartitionTwoAndOne(t *testing.T) {
	chaos.Scenario{
		World: world(), Profile: traffic.HotTenant(),
		Fault: func(w *chaos.World) chaos.Fault { return w.Partition([]string{eu, us}, []string{ap}) },
		Lasts: 8 * time.Second, Notice: within(chaos.NoticeSilence, eu, us, ap), Modes: blind(), Again: chaos.AgainRedialled,
		Groups: []chaos.Group{parts(eu, us), parts(ap)},
	}.Run(t)
}

func TestPartitionOneWay(t *testing.T) {
	chaos.Scenario{
		World: world(), Profile: traffic.Mixed(),
		Fault: func(w *chaos.World) chaos.Fault { return w.CutOneWay(eu, us) },
		Lasts: 5 * time.Second, Notice: within(chaos.NoticeOneWay, eu, us), Modes: blind(), Again: chaos.AgainRedialled,
	}.Run(t)
}

func TestPartitionFlapping(t *testing.T) {
	chaos.Scenario{
		World: world(), Profile: traffic.HotTenant(),
		Fault: func(w *chaos.World) chaos.Fault {
			return w.Flap(w.Partition([]string{eu}, []string{us, ap}), time.Second)
		},
		// Who comes and goes waits longer each time before it is counted on again.
		Lasts: 6 * time.Second, Modes: blind(), Again: 35 * time.Second, Repeats: true,
	}.Run(t)
}

func TestPartitionBridge(t *testing.T) {
	chaos.Scenario{
		World: world(), Profile: traffic.HotTenant(),
		Fault: func(w *chaos.World) chaos.Fault { return w.CutBetween(eu, ap) },
		Lasts: 6 * time.Second, Notice: within(chaos.NoticeOneWay, eu, us, ap), Modes: blind(), Again: chaos.AgainRedialled,
	}.Run(t)
}

func TestUDPLoss(t *testing.T) {
	chaos.Scenario{
		World: world(), Profile: traffic.Steady(),
		Fault: func(w *chaos.World) chaos.Fault { return w.LoseUDP(0.5) },
		Lasts: 6 * time.Second, Modes: blind(), Unmoved: chaos.Names(), Again: chaos.Again,
	}.Run(t)
}

func TestRoughLines(t *testing.T) {
	chaos.Scenario{
		World: world(), Profile: traffic.Bursts(),
		Fault: func(w *chaos.World) chaos.Fault { return w.Rough(0.01, 0.05, 0.05) },
		Lasts: 4 * time.Second, Modes: blind(), Again: chaos.Again, Repeats: true,
	}.Run(t)
}
