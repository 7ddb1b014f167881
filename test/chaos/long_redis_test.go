//go:build chaos && chaoslong && linux

package chaos_test

import (
	"testing"
	"time"

	"github.com/regiond/regiond/test/chaos"
	"github.com/regiond/regiond/test/chaos/traffic"
	"github.com/regiond/regiond/test/faultproxy"
)

func TestLongRedis(t *testing.T) {
	once(t, []scenario{
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
		{"RedisScriptsForgotten", chaos.Scenario{
			Fault: func(w *chaos.World) chaos.Fault { return w.ForgetScripts(us, 50*time.Millisecond) },
			Lasts: 8 * time.Second, Unmoved: chaos.Names(),
		}},
		{"RedisBusy", chaos.Scenario{
			Fault: func(w *chaos.World) chaos.Fault { return w.OccupyRedis(us) },
			Lasts: 6 * time.Second, Notice: within(chaos.NoticeRedis, us), Modes: away(),
		}},
		{"RedisDiskFull", chaos.Scenario{
			World: with(func(o *chaos.Options) { o.Disk = true }), Fault: func(w *chaos.World) chaos.Fault { return w.FillDisk(us) },
			Lasts: 6 * time.Second, Notice: within(2*time.Second, us), Modes: away(), Again: chaos.Again + time.Second,
		}},
		{"RedisLittleSlower", chaos.Scenario{
			World: proxied(), Fault: func(w *chaos.World) chaos.Fault { return w.SlowRedis(us, 5*time.Millisecond) },
			Lasts: 8 * time.Second, Unmoved: chaos.Names(),
		}},
		// One clock gains and another loses forty times what NTP corrects by at most.
		{"RedisClockSlewed", chaos.Scenario{
			World: with(func(o *chaos.Options) { o.Clock = true }),
			Fault: func(w *chaos.World) chaos.Fault { return chaos.Both(w.SlewRedis(us, 20_000), w.SlewRedis(ap, -20_000)) },
			Lasts: 8 * time.Second, Unmoved: chaos.Names(),
		}},
		{"RedisFsyncStalls", chaos.Scenario{
			World: with(func(o *chaos.Options) { o.Sync = true }), Fault: func(w *chaos.World) chaos.Fault { return w.StallDisk(us, 300*time.Millisecond) },
			Lasts: 6 * time.Second, Notice: within(chaos.NoticeRedis, us), Modes: away(),
		}},
		{"RedisDiskBroken", chaos.Scenario{
			World: with(func(o *chaos.Options) { o.Sync = true }), Fault: func(w *chaos.World) chaos.Fault { return w.BreakDisk(us) },
			Lasts: 4 * time.Second, Notice: within(chaos.NoticeRedis, us), Modes: away(),
		}},
		{"RedisLogTorn", chaos.Scenario{
			World: with(func(o *chaos.Options) { o.Disk = true }), Fault: func(w *chaos.World) chaos.Fault { return w.TearLog(us, 1371) },
			Lasts: 3 * time.Second, Notice: within(chaos.NoticeRedis, us), Modes: away(), Loses: []string{us},
		}},
		{"RedisKeysGarbled", chaos.Scenario{
			Fault: func(w *chaos.World) chaos.Fault { return w.GarbleRedis(us, traffic.Edge+"-*") },
			Lasts: 4 * time.Second, Notice: within(chaos.NoticeRedis, us), Modes: away(),
		}},
	})
}

// The rest of what one Linux machine can do to a deployment. Each scenario runs at the
// duration that it names: some need it.

func proxied() chaos.Options {
	return with(func(o *chaos.Options) { o.Proxy = true })
}

func TestRedisClockOscillates(t *testing.T) {
	const swing = 200 * time.Millisecond
	usual(chaos.Scenario{
		World: with(func(o *chaos.Options) { o.Clock = true }), Fault: func(w *chaos.World) chaos.Fault { return w.OscillateRedis(us, swing, 100*time.Millisecond) },
		Lasts: 8 * time.Second, Stepped: true, Swings: swing, Repeats: true,
	}).Once(t)
}

func TestRedisFailover(t *testing.T) {
	failedOver(t, func(w *chaos.World) chaos.Fault { return w.Kill(chaos.Redis, us) })
}

// The frozen primary continues where it stopped, and takes writes until the sentinels find it.
func TestRedisOldPrimaryThaws(t *testing.T) {
	failedOver(t, func(w *chaos.World) chaos.Fault { return w.Freeze(chaos.Redis, us) })
}

func failedOver(t *testing.T, primary func(w *chaos.World) chaos.Fault) {
	t.Helper()
	usual(chaos.Scenario{
		World: with(func(o *chaos.Options) { o.Sentinel = us }),
		Fault: func(w *chaos.World) chaos.Fault { return w.FailOver(us, primary(w)) },
		Lasts: 6 * time.Second, Notice: within(chaos.NoticeRedis, us), Modes: away(), Loses: []string{us},
	}).Once(t)
}
