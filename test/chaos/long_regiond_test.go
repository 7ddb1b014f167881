//go:build chaos && chaoslong && linux

package chaos_test

import (
	"testing"
	"time"

	"github.com/regiond/regiond/test/chaos"
	"github.com/regiond/regiond/test/chaos/traffic"
)

func TestRegiondStarved(t *testing.T) {
	chaos.Scenario{
		World: world(), Profile: traffic.Steady(),
		Fault: func(w *chaos.World) chaos.Fault { return w.Starve(us, 5) },
		Lasts: 8 * time.Second, Modes: append(blind(), away()...), Again: chaos.AgainRedialled, Down: []string{us}, Repeats: true,
	}.Once(t)
}

func TestRegiondWithoutFiles(t *testing.T) {
	chaos.Scenario{
		World: world(), Profile: traffic.Steady(),
		Fault: func(w *chaos.World) chaos.Fault { return w.DenyFiles(us) },
		Lasts: 8 * time.Second, Modes: blind(), Unmoved: []string{eu, ap}, Again: chaos.Again, Down: []string{us},
	}.Once(t)
}

func TestRegiondRestarted(t *testing.T) {
	chaos.Scenario{
		World: world(), Profile: traffic.Steady(),
		Fault: func(w *chaos.World) chaos.Fault { return w.Restart(us) },
		Lasts: time.Second, Modes: blind(), Again: chaos.AgainRedialled, Down: []string{us},
	}.Once(t)
}

// At moments that nobody has chosen: whatever it was about to tell, the next life tells.
func TestRegiondKilled(t *testing.T) {
	chaos.Scenario{
		World: world(), Profile: traffic.Steady(),
		Fault: func(w *chaos.World) chaos.Fault { return w.KillRegiond(us, 1300*time.Millisecond) },
		// Who comes and goes waits longer each time before it is counted on again.
		Lasts: 8 * time.Second, Modes: append(blind(), away()...), Again: 35 * time.Second, Down: []string{us}, Repeats: true,
	}.Once(t)
}

// The second is told to stay out of the way. While it speaks for the region nobody need
// trust that, and when it is gone its silence is noticed.
func TestRegionNamedTwice(t *testing.T) {
	chaos.Scenario{
		World: world(), Profile: traffic.Steady(),
		Fault: func(w *chaos.World) chaos.Fault { return w.Impersonate(us) },
		Lasts: 12 * time.Second, Modes: blind(), Again: 15 * time.Second, Repeats: true,
	}.Once(t)
}

func TestStagingMeetsProduction(t *testing.T) {
	chaos.Scenario{
		World: world(), Profile: traffic.Steady(),
		Fault: func(w *chaos.World) chaos.Fault { return w.Stray(us) },
		Lasts: 8 * time.Second, Modes: blind(), Unmoved: chaos.Names(), Again: chaos.Again,
	}.Once(t)
}

// Regions go by different limits for three seconds, and by half a file never.
func TestReloadReachesRegionsInTurn(t *testing.T) {
	chaos.Scenario{
		World: world(), Profile: traffic.HotTenant(),
		Fault: func(w *chaos.World) chaos.Fault { return w.Reload(600, 1500*time.Millisecond) },
		Lasts: 4 * time.Second, Modes: blind(), Unmoved: chaos.Names(), Again: chaos.Again,
	}.Once(t)
}

func TestCollectorFrozen(t *testing.T) {
	o := world()
	o.Collector = true
	chaos.Scenario{
		World: o, Profile: traffic.Steady(),
		Fault: func(w *chaos.World) chaos.Fault { return w.FreezeCollector() },
		Lasts: 8 * time.Second, Modes: blind(), Unmoved: chaos.Names(), Again: chaos.Again,
	}.Once(t)
}

func TestLogNotRead(t *testing.T) {
	o := world()
	o.Pipe = true
	chaos.Scenario{
		World: o, Profile: traffic.Steady(),
		Fault: func(w *chaos.World) chaos.Fault { return w.StopReading(us) },
		Lasts: 6 * time.Second, Modes: blind(), Unmoved: chaos.Names(), Again: chaos.Again,
	}.Once(t)
}
