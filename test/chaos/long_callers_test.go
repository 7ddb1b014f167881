//go:build chaos && chaoslong && linux

package chaos_test

import (
	"testing"
	"time"

	"github.com/regiond/regiond/test/chaos"
	"github.com/regiond/regiond/test/chaos/traffic"
)

// What callers may do to one region, while the others and its own customers must not
// notice.
func besieged(t *testing.T, fault func(w *chaos.World) chaos.Fault) {
	t.Helper()
	chaos.Scenario{
		World: world(), Profile: traffic.Steady(), Fault: fault,
		Lasts: 8 * time.Second, Modes: blind(), Unmoved: chaos.Names(), Again: chaos.Again,
	}.Once(t)
}

func TestSlowCallers(t *testing.T) {
	besieged(t, func(w *chaos.World) chaos.Fault { return w.Dribble(us, 400) })
}

func TestConnectionChurn(t *testing.T) {
	besieged(t, func(w *chaos.World) chaos.Fault { return w.Churn(us, 300) })
}

func TestRandomTenants(t *testing.T) {
	besieged(t, func(w *chaos.World) chaos.Fault { return w.Crowd(us, 1000) })
}

func TestHotTenantFlood(t *testing.T) {
	besieged(t, func(w *chaos.World) chaos.Fault { return w.Mob(us, 1000) })
}

func TestStrangeRequests(t *testing.T) {
	besieged(t, func(w *chaos.World) chaos.Fault { return w.Confuse(us) })
}
