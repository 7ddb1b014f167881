//go:build chaos && linux

package chaos_test

import (
	"testing"
	"time"

	"github.com/regiond/regiond/test/chaos"
)

// TestHostile: somebody attacks from each place on the network between regions. What they achieve
// is at most what docs/failure.md says.
func TestHostile(t *testing.T) {
	run(t, []scenario{
		{"InventedMembers", chaos.Scenario{
			Fault: func(w *chaos.World) chaos.Fault { return w.InventMembers(us) },
			// Invented processes are silent on the bus, one after the other, and a region that is left
			// again soon is waited for longer.
			Lasts: 4 * time.Second, Again: 15 * time.Second, Repeats: true,
		}},
		{"NeighbourOnNATS", chaos.Scenario{
			Fault: func(w *chaos.World) chaos.Fault { return w.NeighbourOnNATS(us) },
			Lasts: 4 * time.Second, Unmoved: chaos.Names(),
		}},
		{"StolenKey", chaos.Scenario{
			Fault: func(w *chaos.World) chaos.Fault { return w.StolenKey(us) },
			Lasts: 4 * time.Second, Again: 15 * time.Second, Repeats: true, // a region that is left again soon is waited for longer
		}},
	})
}
