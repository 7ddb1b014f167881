//go:build chaos && linux

package chaos_test

import (
	"testing"
	"time"

	"github.com/regiond/regiond/test/chaos"
	"github.com/regiond/regiond/test/chaos/traffic"
)

func TestNATSKilled(t *testing.T) {
	chaos.Scenario{
		World: world(), Profile: traffic.Steady(),
		Fault: func(w *chaos.World) chaos.Fault { return w.KillNATS(us) },
		Lasts: 3 * time.Second, Notice: within(chaos.NoticeSilence, eu, us, ap), Modes: blind(), Again: chaos.AgainRedialled,
	}.Run(t)
}

func TestNATSKilledEverywhere(t *testing.T) {
	chaos.Scenario{
		World: world(), Profile: traffic.HotTenant(),
		Fault: func(w *chaos.World) chaos.Fault { return w.KillNATS(chaos.Names()...) },
		Lasts: 3 * time.Second, Notice: within(chaos.NoticeSilence, eu, us, ap), Modes: blind(), Again: chaos.AgainRedialled,
	}.Run(t)
}

func TestNATSFrozen(t *testing.T) {
	chaos.Scenario{
		World: world(), Profile: traffic.Steady(),
		Fault: func(w *chaos.World) chaos.Fault { return w.FreezeNATS(us) },
		Lasts: 4 * time.Second, Notice: within(chaos.NoticeSilence, eu, us, ap), Modes: blind(), Again: chaos.AgainRedialled,
	}.Run(t)
}

func TestNATSDuplicated(t *testing.T) {
	chaos.Scenario{
		World: world(), Profile: traffic.HotTenant(),
		Fault: func(w *chaos.World) chaos.Fault { return w.DuplicateNATS(eu, 700*time.Millisecond) },
		Lasts: 4 * time.Second, Modes: blind(), Unmoved: chaos.Names(), Again: chaos.Again,
	}.Run(t)
}

func TestNATSPoisoned(t *testing.T) {
	chaos.Scenario{
		World: world(), Profile: traffic.Steady(),
		Fault: func(w *chaos.World) chaos.Fault { return w.PoisonNATS(eu) },
		Lasts: 4 * time.Second, Modes: blind(), Unmoved: chaos.Names(), Again: chaos.Again,
	}.Run(t)
}
