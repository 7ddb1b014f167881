//go:build chaos && chaoslong && linux

package chaos_test

import (
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/regiond/regiond/test/chaos"
	"github.com/regiond/regiond/test/chaos/traffic"
)

func TestLongRegiond(t *testing.T) {
	once(t, []scenario{
		{"RegiondStarved", chaos.Scenario{
			Fault: func(w *chaos.World) chaos.Fault { return w.Starve(us, 5) },
			Lasts: 8 * time.Second, Modes: append(blind(), away()...), Again: chaos.AgainRedialled, Down: []string{us}, Repeats: true,
		}},
		{"RegiondWithoutFiles", chaos.Scenario{
			Fault: func(w *chaos.World) chaos.Fault { return w.DenyFiles(us) },
			Lasts: 8 * time.Second, Unmoved: []string{eu, ap}, Down: []string{us},
		}},
		{"RegiondRestarted", chaos.Scenario{
			Fault: func(w *chaos.World) chaos.Fault { return w.Restart(us) },
			Lasts: time.Second, Again: chaos.AgainRedialled, Down: []string{us},
		}},
		// At arbitrary moments: the next generation publishes what this one did not.
		{"RegiondKilled", chaos.Scenario{
			Fault: func(w *chaos.World) chaos.Fault { return w.KillRegiond(us, 1300*time.Millisecond) },
			// A region that flaps waits longer each time before it is counted on again.
			Lasts: 8 * time.Second, Modes: append(blind(), away()...), Again: 35 * time.Second, Down: []string{us}, Repeats: true,
		}},
		// The duplicate must not serve. While it speaks for the region no other region need
		// trust that, and when it is gone its silence is noticed.
		{"RegionNamedTwice", chaos.Scenario{
			Fault: func(w *chaos.World) chaos.Fault { return w.Impersonate(us) },
			Lasts: 12 * time.Second, Again: 15 * time.Second, Repeats: true,
		}},
		{"StagingMeetsProduction", chaos.Scenario{
			Fault: func(w *chaos.World) chaos.Fault { return w.Stray(us) },
			Lasts: 8 * time.Second, Unmoved: chaos.Names(),
		}},
		// Regions go by different limits for three seconds, and by half a file never.
		{"ReloadReachesRegionsInTurn", chaos.Scenario{
			Profile: traffic.HotTenant(), Fault: func(w *chaos.World) chaos.Fault {
				return w.Reload(traffic.Hot+"-00", chaos.HotUnits, 600, 2400*time.Millisecond)
			},
			Lasts: 4 * time.Second, Unmoved: chaos.Names(),
		}},
		{"CollectorFrozen", chaos.Scenario{
			World: with(func(o *chaos.Options) { o.Collector = true }), Fault: func(w *chaos.World) chaos.Fault { return w.FreezeCollector() },
			Lasts: 8 * time.Second, Unmoved: chaos.Names(),
		}},
		{"LogNotRead", chaos.Scenario{
			World: with(func(o *chaos.Options) { o.Pipe = true }), Fault: func(w *chaos.World) chaos.Fault { return w.StopReading(us) },
			Lasts: 6 * time.Second, Unmoved: chaos.Names(),
		}},
	})
}

// once runs scenarios at their own durations only: some need them.
func once(t *testing.T, all []scenario) {
	for _, s := range all {
		t.Run(s.name, usual(s.Scenario).Once)
	}
}

// Two faults at once, and any of them one after the other.

func TestRedisKilledAndPartition(t *testing.T) {
	usual(chaos.Scenario{
		Profile: traffic.HotTenant(),
		Fault: func(w *chaos.World) chaos.Fault {
			return chaos.Both(w.Kill(chaos.Redis, us), w.Partition([]string{eu, us}, []string{ap}))
		},
		Lasts: 8 * time.Second, Notice: within(chaos.NoticeSilence, eu, us, ap), Modes: append(blind(), away()...),
		Again: chaos.AgainRedialled, Forgets: []string{us}, Groups: []chaos.Group{parts(ap)},
	}).Once(t)
}

func TestRedisSlowAndNATSFrozen(t *testing.T) {
	usual(chaos.Scenario{
		World: proxied(),
		Fault: func(w *chaos.World) chaos.Fault {
			return chaos.Both(w.SlowRedis(us, 100*time.Millisecond), w.Freeze(chaos.NATS, eu))
		},
		Lasts: 8 * time.Second, Notice: within(chaos.NoticeSilence, eu, us, ap), Modes: append(blind(), away()...),
		Again: chaos.AgainRedialled,
	}).Once(t)
}

// TestNemesis does to a world whatever can be undone, for CHAOSTIME.
func TestNemesis(t *testing.T) {
	lasts, err := time.ParseDuration(os.Getenv("CHAOSTIME"))
	if err != nil {
		t.Fatalf("CHAOSTIME is a duration such as 10m: %v", err)
	}
	seed, err := strconv.ParseUint(os.Getenv("CHAOSSEED"), 10, 64)
	if err != nil {
		seed = uint64(time.Now().UnixNano())
	}
	t.Logf("CHAOSSEED=%d repeats these faults in this order", seed)
	usual(chaos.Scenario{
		World: proxied(), Profile: traffic.Mixed(),
		Fault: func(w *chaos.World) chaos.Fault {
			return w.Nemesis(seed,
				func() chaos.Fault { return w.Freeze(chaos.Redis, us) },
				func() chaos.Fault { return w.SlowRedis(eu, 100*time.Millisecond) },
				func() chaos.Fault { return w.FillRedis(ap) },
				func() chaos.Fault { return w.BreakReplies(eu, 200*time.Millisecond) },
				func() chaos.Fault { return w.ForgetScripts(ap, 50*time.Millisecond) },
				func() chaos.Fault { return w.Kill(chaos.NATS, us) },
				func() chaos.Fault { return w.Freeze(chaos.NATS, eu) },
				func() chaos.Fault { return w.DuplicateNATS(ap, time.Second) },
				func() chaos.Fault { return w.PoisonNATS(us) },
				func() chaos.Fault { return w.Partition([]string{eu, us}, []string{ap}) },
				func() chaos.Fault { return w.Partition([]string{eu}, []string{us}, []string{ap}) },
				func() chaos.Fault { return w.CutBetween(us, ap) },
				func() chaos.Fault { return w.CutOneWay(ap, eu) },
				func() chaos.Fault { return w.LoseUDP(0.5) },
				func() chaos.Fault { return w.Rough(0.02, 0.05, 0.05) },
			)
		},
		// A region that flaps waits for up to 30 s.
		Lasts: lasts, Modes: append(blind(), away()...), Again: 40 * time.Second, Repeats: true, Shifted: true,
	}).Once(t)
}
