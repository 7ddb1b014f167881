//go:build chaos && linux

package chaos_test

import (
	"testing"
	"time"

	"github.com/regiond/regiond/test/chaos"
	"github.com/regiond/regiond/test/chaos/traffic"
)

func TestRegionFrozen(t *testing.T) {
	chaos.Scenario{
		World: world(), Profile: traffic.Steady(),
		Fault: func(w *chaos.World) chaos.Fault { return w.FreezeRegion(us) },
		Lasts: 4 * time.Second, Notice: within(chaos.NoticeSilence, eu, ap), Modes: blind(), Again: chaos.AgainRedialled,
		Down: []string{us},
	}.Run(t)
}

func TestRegionCrashedBackElsewhere(t *testing.T) {
	chaos.Scenario{
		World: world(), Profile: traffic.Steady(),
		Fault: func(w *chaos.World) chaos.Fault { return w.CrashRegion(us) },
		Lasts: 3 * time.Second, Notice: within(chaos.NoticeSilence, eu, ap), Modes: blind(), Again: chaos.AgainRedialled,
		Down: []string{us},
	}.Run(t)
}

func TestAllRegionsRestarted(t *testing.T) {
	chaos.Scenario{
		World: world(), Profile: traffic.Steady(),
		Fault: func(w *chaos.World) chaos.Fault { return w.RestartAll() },
		Lasts: time.Second, Modes: blind(), Again: chaos.AgainRedialled, Down: chaos.Names(),
	}.Run(t)
}

// With NATS servers inside the regiond processes, joined by gateways of their own.
func TestEmbeddedPartitionTwoAndOne(t *testing.T) {
	o := world()
	o.Embedded = true
	chaos.Scenario{
		World: o, Profile: traffic.HotTenant(),
		Fault: func(w *chaos.World) chaos.Fault { return w.Partition([]string{eu, us}, []string{ap}) },
		Lasts: 6 * time.Second, Notice: within(chaos.NoticeSilence, eu, us, ap), Modes: blind(), Again: chaos.AgainRedialled,
		Groups: []chaos.Group{parts(eu, us), parts(ap)},
	}.Run(t)
}

func TestEmbeddedRegionFrozen(t *testing.T) {
	o := world()
	o.Embedded = true
	chaos.Scenario{
		World: o, Profile: traffic.Steady(),
		Fault: func(w *chaos.World) chaos.Fault { return w.FreezeRegion(us) },
		Lasts: 4 * time.Second, Notice: within(chaos.NoticeSilence, eu, ap), Modes: blind(), Again: chaos.AgainRedialled,
		Down: []string{us},
	}.Run(t)
}

func TestEmbeddedRedisKilled(t *testing.T) {
	o := world()
	o.Embedded = true
	chaos.Scenario{
		World: o, Profile: traffic.Steady(),
		Fault: func(w *chaos.World) chaos.Fault { return w.KillRedis(us) },
		Lasts: 3 * time.Second, Notice: within(chaos.NoticeRedis, us), Modes: away(), Again: chaos.Again,
		Forgets: []string{us},
	}.Run(t)
}
