//go:build chaos && chaoslong && linux

package chaos_test

import (
	"testing"
	"time"

	"github.com/regiond/regiond/test/chaos"
	"github.com/regiond/regiond/test/chaos/traffic"
)

// Messages come back when what they tell of has long left the window, and after newer ones.
func TestNATSReplayedLate(t *testing.T) {
	chaos.Scenario{
		World: world(), Profile: traffic.HotTenant(),
		Fault: func(w *chaos.World) chaos.Fault { return w.DuplicateNATS(eu, 3*chaos.HotWindow) },
		Lasts: 18 * time.Second, Modes: blind(), Unmoved: chaos.Names(), Again: chaos.Again,
	}.Once(t)
}

func TestNATSDenied(t *testing.T) {
	chaos.Scenario{
		World: world(), Profile: traffic.Steady(),
		Fault: func(w *chaos.World) chaos.Fault { return w.DenyNATS(us) },
		Lasts: 5 * time.Second, Notice: within(chaos.NoticeOneWay, eu, us, ap), Modes: blind(), Again: chaos.AgainRedialled,
	}.Once(t)
}

// Four megabytes a second for everybody to refuse.
func TestNATSFlooded(t *testing.T) {
	chaos.Scenario{
		World: world(), Profile: traffic.Steady(),
		Fault: func(w *chaos.World) chaos.Fault { return w.FloodNATS(eu, 4<<20) },
		Lasts: 6 * time.Second, Modes: blind(), Again: chaos.AgainRedialled, Repeats: true,
	}.Once(t)
}

// regiond takes nothing while much is sent to it: its NATS keeps what it has room for and
// then drops the connection.
func TestNATSSlowConsumer(t *testing.T) {
	chaos.Scenario{
		World: world(), Profile: traffic.Steady(),
		Fault: func(w *chaos.World) chaos.Fault { return chaos.Both(w.FreezeRegiond(us), w.FloodNATS(us, 4<<20)) },
		Lasts: 8 * time.Second, Notice: within(chaos.NoticeSilence, eu, ap), Modes: blind(), Again: chaos.AgainRedialled,
		Down: []string{us},
	}.Once(t)
}
