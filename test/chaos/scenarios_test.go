//go:build chaos && linux

package chaos_test

import (
	"testing"
	"time"

	"github.com/regiond/regiond/test/chaos"
	"github.com/regiond/regiond/test/chaos/judge"
	"github.com/regiond/regiond/test/chaos/traffic"
	"github.com/regiond/regiond/test/faultproxy"
)

func TestRedis(t *testing.T) {
	run(t, []scenario{
		// Nothing is wrong: what the machine and the lines do by themselves.
		{"NothingWrong", chaos.Scenario{
			Fault: (*chaos.World).Nothing,
			Lasts: 3 * time.Second, Unmoved: chaos.Names(),
		}},
		{"RedisKilled", chaos.Scenario{
			Fault: func(w *chaos.World) chaos.Fault { return w.Kill(chaos.Redis, us) },
			Lasts: 3 * time.Second, Notice: within(chaos.NoticeRedis, us), Modes: away(), Forgets: []string{us},
		}},
		{"RedisFrozen", chaos.Scenario{
			Fault: func(w *chaos.World) chaos.Fault { return w.Freeze(chaos.Redis, us) },
			Lasts: 3 * time.Second, Notice: within(chaos.NoticeRedis, us), Modes: away(),
		}},
		{"RedisSlow", chaos.Scenario{
			World: with(func(o *chaos.Options) { o.Proxy = true }), Fault: func(w *chaos.World) chaos.Fault { return w.SlowRedis(us, 200*time.Millisecond) },
			Lasts: 3 * time.Second, Notice: within(chaos.NoticeRedis, us), Modes: away(),
		}},
		{"RedisStutters", chaos.Scenario{
			Fault: func(w *chaos.World) chaos.Fault { return w.StutterRedis(us, 20*time.Millisecond, 200*time.Millisecond) },
			Lasts: 2 * time.Second, Unmoved: chaos.Names(), Busy: us,
		}},
		{"RedisConnectionsSilent", chaos.Scenario{
			World: with(func(o *chaos.Options) { o.Proxy = true }), Fault: func(w *chaos.World) chaos.Fault { return w.SilenceRedis(us, faultproxy.All) },
			Lasts: time.Second, Notice: within(chaos.NoticeRedis, us), Modes: away(),
		}},
		// The server answers those alone that carry decisions.
		{"RedisProbesSilent", chaos.Scenario{
			World: with(func(o *chaos.Options) { o.Proxy = true }), Fault: func(w *chaos.World) chaos.Fault { return w.SilenceRedis(us, faultproxy.Others) },
			Lasts: time.Second, Unmoved: chaos.Names(), Busy: us,
		}},
		{"RedisFlushed", bounded(chaos.Scenario{
			Fault: func(w *chaos.World) chaos.Fault { return w.FlushRedis(us) },
			Lasts: 4 * time.Second, Unmoved: chaos.Names(), Forgets: []string{us}, Lent: us,
		})},
		{"RedisRestarted", bounded(chaos.Scenario{
			Fault: func(w *chaos.World) chaos.Fault { return w.Kill(chaos.Redis, us) },
			Lasts: 500 * time.Millisecond, Notice: within(chaos.NoticeRedis, us), Modes: away(), Forgets: []string{us}, Lent: us,
		})},
		{"RedisOutOfMemory", chaos.Scenario{
			Fault: func(w *chaos.World) chaos.Fault { return w.FillRedis(us) },
			Lasts: 3 * time.Second, Notice: within(chaos.NoticeRedis, us), Modes: away(),
		}},
	})
}

func TestRedisClockForward(t *testing.T) { stepped(t, time.Hour) }

func TestRedisClockBack(t *testing.T) { stepped(t, -2*time.Hour) }

// Each step comes when what the one before has burnt is there again.
func TestRedisClockSteps(t *testing.T) {
	stepped(t, time.Second, 5*time.Second, 20*time.Second, time.Minute)
}

// stepped: what was counted by the old time may be counted again after a step forward,
// which is the cost of a step, but for limits with a bound. No tenant is denied for longer than a window.
func stepped(t *testing.T, steps ...time.Duration) {
	t.Helper()
	const every = 6 * time.Second
	usual(bounded(chaos.Scenario{
		World: with(func(o *chaos.Options) { o.Clock = true }), Fault: func(w *chaos.World) chaos.Fault { return w.StepRedis(us, every, steps...) },
		Lasts: time.Duration(len(steps)) * every, Stepped: true, Wrong: []string{us}, Forgets: []string{us},
	})).Run(t)
}

// TestRedisClocksDrift: one clock is too slow and one too fast, and the limits with a bound stay open.
func TestRedisClocksDrift(t *testing.T) {
	usual(bounded(chaos.Scenario{
		World: with(func(o *chaos.Options) { o.Clock = true }),
		Fault: func(w *chaos.World) chaos.Fault {
			return chaos.Both(w.DriftRedis(us, -10_000), w.DriftRedis(ap, 10_000))
		},
		Lasts: 20 * time.Second, Unmoved: chaos.Names(), Wrong: []string{us, ap},
	})).Run(t)
}

func TestBus(t *testing.T) {
	run(t, []scenario{
		{"NATSKilled", chaos.Scenario{
			Fault: func(w *chaos.World) chaos.Fault { return w.Kill(chaos.NATS, us) },
			Lasts: 3 * time.Second, Notice: within(chaos.NoticeSilence, eu, us, ap), Again: chaos.AgainRedialled,
		}},
		{"NATSKilledEverywhere", chaos.Scenario{
			Profile: traffic.HotTenant(), Fault: func(w *chaos.World) chaos.Fault { return w.Kill(chaos.NATS, chaos.Names()...) },
			Lasts: 3 * time.Second, Notice: within(chaos.NoticeSilence, eu, us, ap), Again: chaos.AgainRedialled,
		}},
		{"NATSFrozen", chaos.Scenario{
			Fault: func(w *chaos.World) chaos.Fault { return w.Freeze(chaos.NATS, us) },
			Lasts: 4 * time.Second, Notice: within(chaos.NoticeSilence, eu, us, ap), Again: chaos.AgainRedialled,
		}},
		{"NATSDuplicated", chaos.Scenario{
			Profile: traffic.HotTenant(), Fault: func(w *chaos.World) chaos.Fault { return w.DuplicateNATS(eu, 700*time.Millisecond) },
			Lasts: 4 * time.Second, Unmoved: chaos.Names(),
		}},
	})
}

func TestLines(t *testing.T) {
	run(t, []scenario{
		{"PartitionWhole", bounded(chaos.Scenario{
			Profile: traffic.HotTenant(), Fault: func(w *chaos.World) chaos.Fault { return w.Partition([]string{eu}, []string{us}, []string{ap}) },
			Lasts: 8 * time.Second, Notice: within(chaos.NoticeSilence, eu, us, ap), Again: chaos.AgainRedialled, Groups: []chaos.Group{parts(eu), parts(us), parts(ap)},
		})},
		{"PartitionTwoAndOne", chaos.Scenario{
			Profile: traffic.HotTenant(), Fault: func(w *chaos.World) chaos.Fault { return w.Partition([]string{eu, us}, []string{ap}) },
			Lasts: 8 * time.Second, Notice: within(chaos.NoticeSilence, eu, us, ap), Again: chaos.AgainRedialled, Groups: []chaos.Group{parts(eu, us), parts(ap)},
		}},
		{"PartitionOneWay", chaos.Scenario{
			Profile: traffic.Mixed(), Fault: func(w *chaos.World) chaos.Fault { return w.CutOneWay(eu, us) },
			Lasts: 5 * time.Second, Notice: within(chaos.NoticeOneWay, eu, us), Again: chaos.AgainRedialled,
		}},
		{"PartitionFlapping", chaos.Scenario{
			Profile: traffic.HotTenant(),
			Fault: func(w *chaos.World) chaos.Fault {
				return w.Flap(w.Partition([]string{eu}, []string{us, ap}), time.Second)
			},
			// A region that flaps waits longer each time before it is counted on again.
			Lasts: 6 * time.Second, Again: 35 * time.Second, Repeats: true,
		}},
		{"PartitionBridge", chaos.Scenario{
			Profile: traffic.HotTenant(), Fault: func(w *chaos.World) chaos.Fault { return w.CutBetween(eu, ap) },
			Lasts: 6 * time.Second, Notice: within(chaos.NoticeOneWay, eu, us, ap), Again: chaos.AgainRedialled,
		}},
		{"UDPLoss", chaos.Scenario{
			Fault: func(w *chaos.World) chaos.Fault { return w.LoseUDP(0.5) },
			Lasts: 6 * time.Second, Unmoved: chaos.Names(),
		}},
		{"RoughLines", chaos.Scenario{
			Profile: traffic.Bursts(), Fault: func(w *chaos.World) chaos.Fault { return w.Rough(0.01, 0.05, 0.05) },
			Lasts: 4 * time.Second, Repeats: true,
		}},
	})
}

func TestRegions(t *testing.T) {
	run(t, []scenario{
		{"RegionFrozen", bounded(chaos.Scenario{
			Fault: func(w *chaos.World) chaos.Fault { return w.Freeze(chaos.All, us) },
			Lasts: 4 * time.Second, Notice: within(chaos.NoticeSilence, eu, ap), Again: chaos.AgainRedialled, Down: []string{us},
		})},
		{"RegionCrashedBackElsewhere", chaos.Scenario{
			Fault: func(w *chaos.World) chaos.Fault { return w.CrashRegion(us) },
			Lasts: 3 * time.Second, Notice: within(chaos.NoticeSilence, eu, ap), Again: chaos.AgainRedialled, Down: []string{us},
		}},
		{"AllRegionsRestarted", chaos.Scenario{
			Fault: func(w *chaos.World) chaos.Fault {
				return chaos.Both(w.Kill(chaos.Regiond, chaos.Names()...), w.Kill(chaos.NATS, chaos.Names()...))
			},
			Lasts: time.Second, Again: chaos.AgainRedialled, Down: chaos.Names(),
		}},
		// With NATS servers inside the regiond processes, joined by gateways of their own.
		{"EmbeddedPartitionTwoAndOne", chaos.Scenario{
			World: with(func(o *chaos.Options) { o.Embedded = true }), Profile: traffic.HotTenant(),
			Fault: func(w *chaos.World) chaos.Fault { return w.Partition([]string{eu, us}, []string{ap}) },
			Lasts: 6 * time.Second, Notice: within(chaos.NoticeSilence, eu, us, ap), Again: chaos.AgainRedialled, Groups: []chaos.Group{parts(eu, us), parts(ap)},
		}},
		{"EmbeddedRegionFrozen", chaos.Scenario{
			World: with(func(o *chaos.Options) { o.Embedded = true }), Fault: func(w *chaos.World) chaos.Fault { return w.Freeze(chaos.All, us) },
			Lasts: 4 * time.Second, Notice: within(chaos.NoticeSilence, eu, ap), Again: chaos.AgainRedialled, Down: []string{us},
		}},
		{"EmbeddedRedisKilled", chaos.Scenario{
			World: with(func(o *chaos.Options) { o.Embedded = true }), Fault: func(w *chaos.World) chaos.Fault { return w.Kill(chaos.Redis, us) },
			Lasts: 3 * time.Second, Notice: within(chaos.NoticeRedis, us), Modes: away(), Forgets: []string{us},
		}},
	})
}

// TestBound: what limits with max_overshoot have to survive beside all the other faults.
func TestBound(t *testing.T) {
	run(t, []scenario{
		{"FailoverLosesWrites", bounded(chaos.Scenario{
			World: with(func(o *chaos.Options) { o.Sentinel = us }),
			Fault: func(w *chaos.World) chaos.Fault {
				return w.FailOver(us, w.Behind(us, 1500*time.Millisecond, w.Kill(chaos.Redis, us)))
			},
			Lasts: 8 * time.Second, Notice: within(2*time.Second, us), Modes: away(), Loses: []string{us},
		})},
		{"UnitsReloaded", bounded(chaos.Scenario{
			Fault: func(w *chaos.World) chaos.Fault {
				return w.Reload(traffic.Strict+"-00", chaos.BoundUnits, lessened, 2400*time.Millisecond)
			},
			Lasts: 9 * time.Second, Unmoved: chaos.Names(), Less: lessened,
		})},
		{"WeightsReloaded", bounded(chaos.Scenario{
			Fault: func(w *chaos.World) chaos.Fault { return w.Reweigh(time.Second, [3]int64{3, 2, 1}) },
			Lasts: time.Second, Repeats: true,
		})},
		{"RegionRemovedAndBack", bounded(chaos.Scenario{
			Fault: func(w *chaos.World) chaos.Fault { return w.Remove(ap, time.Second) },
			Lasts: time.Second, Again: chaos.AgainRedialled, Down: []string{ap}, Repeats: true,
		})},
		{"RegionRestarted", bounded(chaos.Scenario{
			World: with(func(o *chaos.Options) { o.Disk = true }),
			Fault: func(w *chaos.World) chaos.Fault { return w.Kill(chaos.All, us) },
			// No process is left that knows whether the log is whole.
			Lasts: 2 * time.Second, Again: chaos.AgainRedialled, Down: []string{us}, Burns: []string{us}, Repeats: true,
		})},
		{"RedisBackWithLog", bounded(chaos.Scenario{
			World: with(func(o *chaos.Options) { o.Disk = true }),
			Fault: func(w *chaos.World) chaos.Fault { return chaos.Brief(w.Kill(chaos.Redis, us), 500*time.Millisecond) },
			Lasts: 3 * time.Second, Notice: within(chaos.NoticeRedis, us), Modes: away(),
		})},
	})
}

// lessened is the limit of class strict that a reload brings.
const lessened = 60

// TestOverload: five times as much as Redis can do, all the while. The usual requests are few, so
// that what comes one by one is within its capacity; half of them are for the region that is judged.
func TestOverload(t *testing.T) {
	var singles judge.Singles
	overloaded := func(s chaos.Scenario) chaos.Scenario {
		s = usual(s)
		s.Profile.Regions = []int{25, 50, 25}
		s.Overload, s.Rate, s.Singles = us, 400, &singles
		return s
	}
	run(t, []scenario{
		{"RedisKilled", overloaded(chaos.Scenario{
			Fault: func(w *chaos.World) chaos.Fault { return w.Kill(chaos.Redis, us) },
			Lasts: 3 * time.Second, Notice: within(chaos.NoticeRedis, us), Modes: away(), Forgets: []string{us},
		})},
		{"RedisFrozen", overloaded(chaos.Scenario{
			Fault: func(w *chaos.World) chaos.Fault { return w.Freeze(chaos.Redis, us) },
			Lasts: 3 * time.Second, Notice: within(chaos.NoticeRedis, us), Modes: away(),
		})},
		{"Partition", overloaded(chaos.Scenario{
			Profile: traffic.HotTenant(), Fault: func(w *chaos.World) chaos.Fault { return w.Partition([]string{eu, us}, []string{ap}) },
			Lasts: 8 * time.Second, Notice: within(chaos.NoticeSilence, eu, us, ap), Again: chaos.AgainRedialled, Groups: []chaos.Group{parts(eu, us), parts(ap)},
		})},
		{"Reload", overloaded(chaos.Scenario{
			Fault: func(w *chaos.World) chaos.Fault {
				return w.Reload(traffic.Dear+"-00", chaos.DearUnits, switched, 2400*time.Millisecond)
			},
			Lasts: time.Second, Unmoved: chaos.Names(), Switches: switched,
		})},
	})
	for _, objection := range singles.Judge() {
		t.Error(objection)
	}
}

// switched is the limit of class dear that a reload brings: another one that is never reached.
const switched = 80_000
