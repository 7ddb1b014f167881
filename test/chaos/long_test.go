//go:build chaos && chaoslong && linux

package chaos_test

import (
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/regiond/regiond/test/chaos"
	"github.com/regiond/regiond/test/chaos/traffic"
	"github.com/regiond/regiond/test/faultproxy"
)

func proxied() chaos.Options { return with(func(o *chaos.Options) { o.Proxy = true }) }

// failedOver takes a primary away until its replica has taken over.
func failedOver(primary func(w *chaos.World) chaos.Fault) chaos.Scenario {
	return chaos.Scenario{
		World: with(func(o *chaos.Options) { o.Sentinel = us }),
		Fault: func(w *chaos.World) chaos.Fault { return w.FailOver(us, primary(w)) },
		Lasts: 6 * time.Second, Notice: within(chaos.NoticeRedis, us), Modes: away(), Loses: []string{us},
	}
}

// TestLong has scenarios that each run at the duration that they name: some need it.
func TestLong(t *testing.T) {
	for _, s := range []scenario{
		// The server answers all but those that carry decisions. A PING on one of these is
		// lost too, so this is noticed after up to 101 ms, where 60 are promised.
		{"RedisScriptsSilent", chaos.Scenario{
			World: proxied(), Fault: func(w *chaos.World) chaos.Fault { return w.SilenceRedis(us, faultproxy.Scripts) },
			Lasts: time.Second, Notice: within(chaos.NoticeRedis, us), Modes: away(),
		}},
		{"RedisRepliesBroken", chaos.Scenario{
			World: proxied(), Fault: func(w *chaos.World) chaos.Fault { return w.BreakReplies(us, 250*time.Millisecond) },
			Lasts: 8 * time.Second, Notice: within(time.Second, us), Modes: away(), Shifted: true,
		}},
		{"RedisLittleSlower", chaos.Scenario{
			World: proxied(), Fault: func(w *chaos.World) chaos.Fault { return w.SlowRedis(us, 5*time.Millisecond) },
			Lasts: 8 * time.Second, Unmoved: chaos.Names(),
		}},
		{"RedisFailover", failedOver(func(w *chaos.World) chaos.Fault { return w.Kill(chaos.Redis, us) })},
		// The frozen primary continues where it stopped, and takes writes until the sentinels find it.
		{"RedisOldPrimaryThaws", failedOver(func(w *chaos.World) chaos.Fault { return w.Freeze(chaos.Redis, us) })},
		// Messages come back when their content has long left the window, and after newer ones.
		{"NATSReplayedLate", chaos.Scenario{
			Profile: traffic.HotTenant(), Fault: func(w *chaos.World) chaos.Fault { return w.DuplicateNATS(eu, 3*chaos.HotWindow) },
			Lasts: 18 * time.Second, Unmoved: chaos.Names(),
		}},
		{"UDPGone", chaos.Scenario{
			Fault: func(w *chaos.World) chaos.Fault { return w.LoseUDP(1) },
			Lasts: time.Minute, Unmoved: chaos.Names(),
		}},
		{"RegiondRestarted", chaos.Scenario{
			Fault: func(w *chaos.World) chaos.Fault { return w.Restart(us) },
			Lasts: time.Second, Again: chaos.AgainRedialled, Down: []string{us},
		}},
		// Two faults at once.
		{"RedisKilledAndPartition", chaos.Scenario{
			Profile: traffic.HotTenant(),
			Fault: func(w *chaos.World) chaos.Fault {
				return chaos.Both(w.Kill(chaos.Redis, us), w.Partition([]string{eu, us}, []string{ap}))
			},
			Lasts: 8 * time.Second, Notice: within(chaos.NoticeSilence, eu, us, ap), Modes: append(blind(), away()...),
			Again: chaos.AgainRedialled, Forgets: []string{us}, Groups: []chaos.Group{parts(ap)},
		}},
		{"RedisSlowAndNATSFrozen", chaos.Scenario{
			World: proxied(),
			Fault: func(w *chaos.World) chaos.Fault {
				return chaos.Both(w.SlowRedis(us, 100*time.Millisecond), w.Freeze(chaos.NATS, eu))
			},
			Lasts: 8 * time.Second, Notice: within(chaos.NoticeSilence, eu, us, ap), Modes: append(blind(), away()...),
			Again: chaos.AgainRedialled,
		}},
	} {
		t.Run(s.name, usual(s.Scenario).Once)
	}
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
				func() chaos.Fault { return w.Kill(chaos.NATS, us) },
				func() chaos.Fault { return w.Freeze(chaos.NATS, eu) },
				func() chaos.Fault { return w.DuplicateNATS(ap, time.Second) },
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
