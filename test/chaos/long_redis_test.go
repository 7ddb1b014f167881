//go:build chaos && chaoslong && linux

package chaos_test

import (
	"testing"
	"time"

	"github.com/regiond/regiond/test/chaos"
	"github.com/regiond/regiond/test/chaos/traffic"
)

func TestLongRedis(t *testing.T) {
	once(t, []scenario{
		{"RedisRepliesBroken", chaos.Scenario{
			World: proxied(), Profile: traffic.Steady(),
			Fault: func(w *chaos.World) chaos.Fault { return w.BreakReplies(us, 250*time.Millisecond) },
			Lasts: 8 * time.Second, Notice: within(time.Second, us), Modes: away(), Again: chaos.Again, Shifted: true,
		}},
		{"RedisScriptsForgotten", chaos.Scenario{
			World: world(), Profile: traffic.Steady(),
			Fault: func(w *chaos.World) chaos.Fault { return w.ForgetScripts(us, 50*time.Millisecond) },
			Lasts: 8 * time.Second, Modes: blind(), Unmoved: chaos.Names(), Again: chaos.Again,
		}},
		{"RedisBusy", chaos.Scenario{
			World: world(), Profile: traffic.Steady(),
			Fault: func(w *chaos.World) chaos.Fault { return w.OccupyRedis(us) },
			Lasts: 6 * time.Second, Notice: within(chaos.NoticeRedis, us), Modes: away(), Again: chaos.Again,
		}},
		{"RedisDiskFull", chaos.Scenario{
			World: with(func(o *chaos.Options) { o.Disk = true }), Profile: traffic.Steady(),
			Fault: func(w *chaos.World) chaos.Fault { return w.FillDisk(us) },
			Lasts: 6 * time.Second, Notice: within(2*time.Second, us), Modes: away(), Again: chaos.Again + time.Second,
		}},
		{"RedisLittleSlower", chaos.Scenario{
			World: proxied(), Profile: traffic.Steady(),
			Fault: func(w *chaos.World) chaos.Fault { return w.SlowRedis(us, 5*time.Millisecond) },
			Lasts: 8 * time.Second, Modes: blind(), Unmoved: chaos.Names(), Again: chaos.Again,
		}},
		// One clock gains and another loses forty times what NTP corrects by at most.
		{"RedisClockSlewed", chaos.Scenario{
			World: with(func(o *chaos.Options) { o.Clock = true }), Profile: traffic.Steady(),
			Fault: func(w *chaos.World) chaos.Fault {
				return chaos.Both(w.SlewRedis(us, 20_000), w.SlewRedis(ap, -20_000))
			},
			Lasts: 8 * time.Second, Modes: blind(), Unmoved: chaos.Names(), Again: chaos.Again,
		}},
		{"RedisFsyncStalls", chaos.Scenario{
			World: with(func(o *chaos.Options) { o.Sync = true }), Profile: traffic.Steady(),
			Fault: func(w *chaos.World) chaos.Fault { return w.StallDisk(us, 300*time.Millisecond) },
			Lasts: 6 * time.Second, Notice: within(chaos.NoticeRedis, us), Modes: away(), Again: chaos.Again,
		}},
		{"RedisDiskBroken", chaos.Scenario{
			World: with(func(o *chaos.Options) { o.Sync = true }), Profile: traffic.Steady(),
			Fault: func(w *chaos.World) chaos.Fault { return w.BreakDisk(us) },
			Lasts: 4 * time.Second, Notice: within(chaos.NoticeRedis, us), Modes: away(), Again: chaos.Again,
		}},
		{"RedisLogTorn", chaos.Scenario{
			World: with(func(o *chaos.Options) { o.Disk = true }), Profile: traffic.Steady(),
			Fault: func(w *chaos.World) chaos.Fault { return w.TearLog(us, 1371) },
			Lasts: 3 * time.Second, Notice: within(chaos.NoticeRedis, us), Modes: away(), Again: chaos.Again,
			Loses: []string{us},
		}},
		{"RedisKeysGarbled", chaos.Scenario{
			World: world(), Profile: traffic.Steady(),
			Fault: func(w *chaos.World) chaos.Fault { return w.GarbleRedis(us, traffic.Edge+"-*") },
			Lasts: 4 * time.Second, Notice: within(chaos.NoticeRedis, us), Modes: away(), Again: chaos.Again,
		}},
	})
}

// The rest of what one Linux machine can do to a deployment. Each scenario runs at the
// duration that it names: some need it.

func proxied() chaos.Options {
	o := world()
	o.Proxy = true
	return o
}

func TestRedisClockOscillates(t *testing.T) {
	o := world()
	o.Clock = true
	const swing = 200 * time.Millisecond
	chaos.Scenario{
		World: o, Profile: traffic.Steady(),
		Fault: func(w *chaos.World) chaos.Fault { return w.OscillateRedis(us, swing, 100*time.Millisecond) },
		Lasts: 8 * time.Second, Modes: blind(), Again: chaos.Again, Stepped: true, Swings: swing, Repeats: true,
	}.Once(t)
}

func TestRedisFailover(t *testing.T) { failedOver(t, false) }

// The old primary goes on where it stood, and takes writes until the sentinels find it.
func TestRedisOldPrimaryThaws(t *testing.T) { failedOver(t, true) }

func failedOver(t *testing.T, frozen bool) {
	t.Helper()
	o := world()
	o.Sentinel = us
	chaos.Scenario{
		World: o, Profile: traffic.Steady(),
		Fault: func(w *chaos.World) chaos.Fault { return w.FailOver(us, frozen) },
		Lasts: 6 * time.Second, Notice: within(chaos.NoticeRedis, us), Modes: away(), Again: chaos.Again,
		Loses: []string{us},
	}.Once(t)
}
