//go:build chaos && chaoslong && linux

package chaos_test

import (
	"testing"
	"time"

	"github.com/regiond/regiond/test/chaos"
	"github.com/regiond/regiond/test/chaos/traffic"
)

// The rest of what one Linux machine can do to a deployment. Each scenario runs at the
// duration that it names: some need it.

func proxied() chaos.Options {
	o := world()
	o.Proxy = true
	return o
}

func TestRedisRepliesBroken(t *testing.T) {
	chaos.Scenario{
		World: proxied(), Profile: traffic.Steady(),
		Fault: func(w *chaos.World) chaos.Fault { return w.BreakReplies(us, 250*time.Millisecond) },
		Lasts: 8 * time.Second, Notice: within(time.Second, us), Modes: away(), Again: chaos.Again, Shifted: true,
	}.Once(t)
}

func TestRedisScriptsForgotten(t *testing.T) {
	chaos.Scenario{
		World: world(), Profile: traffic.Steady(),
		Fault: func(w *chaos.World) chaos.Fault { return w.ForgetScripts(us, 50*time.Millisecond) },
		Lasts: 8 * time.Second, Modes: blind(), Unmoved: chaos.Names(), Again: chaos.Again,
	}.Once(t)
}

func TestRedisBusy(t *testing.T) {
	chaos.Scenario{
		World: world(), Profile: traffic.Steady(),
		Fault: func(w *chaos.World) chaos.Fault { return w.OccupyRedis(us) },
		Lasts: 6 * time.Second, Notice: within(chaos.NoticeRedis, us), Modes: away(), Again: chaos.Again,
	}.Once(t)
}

func TestRedisDiskFull(t *testing.T) {
	o := world()
	o.Disk = true
	chaos.Scenario{
		World: o, Profile: traffic.Steady(),
		Fault: func(w *chaos.World) chaos.Fault { return w.FillDisk(us) },
		Lasts: 6 * time.Second, Notice: within(2*time.Second, us), Modes: away(), Again: chaos.Again + time.Second,
	}.Once(t)
}

func TestRedisClockStrobes(t *testing.T) {
	o := world()
	o.Clock = true
	const swing = 200 * time.Millisecond
	chaos.Scenario{
		World: o, Profile: traffic.Steady(),
		Fault: func(w *chaos.World) chaos.Fault { return w.StrobeRedis(us, swing, 100*time.Millisecond) },
		Lasts: 8 * time.Second, Modes: blind(), Again: chaos.Again, Stepped: true, Swings: swing, Repeats: true,
	}.Once(t)
}

func TestRedisLittleSlower(t *testing.T) {
	chaos.Scenario{
		World: proxied(), Profile: traffic.Steady(),
		Fault: func(w *chaos.World) chaos.Fault { return w.SlowRedis(us, 5*time.Millisecond) },
		Lasts: 8 * time.Second, Modes: blind(), Unmoved: chaos.Names(), Again: chaos.Again,
	}.Once(t)
}

// One clock gains and another loses forty times what NTP corrects by at most.
func TestRedisClockSlewed(t *testing.T) {
	o := world()
	o.Clock = true
	chaos.Scenario{
		World: o, Profile: traffic.Steady(),
		Fault: func(w *chaos.World) chaos.Fault {
			return chaos.Both(w.SlewRedis(us, 20_000), w.SlewRedis(ap, -20_000))
		},
		Lasts: 8 * time.Second, Modes: blind(), Unmoved: chaos.Names(), Again: chaos.Again,
	}.Once(t)
}

func TestRedisFsyncStalls(t *testing.T) {
	o := world()
	o.Sync = true
	chaos.Scenario{
		World: o, Profile: traffic.Steady(),
		Fault: func(w *chaos.World) chaos.Fault { return w.StallDisk(us, 300*time.Millisecond) },
		Lasts: 6 * time.Second, Notice: within(chaos.NoticeRedis, us), Modes: away(), Again: chaos.Again,
	}.Once(t)
}

func TestRedisDiskBroken(t *testing.T) {
	o := world()
	o.Sync = true
	chaos.Scenario{
		World: o, Profile: traffic.Steady(),
		Fault: func(w *chaos.World) chaos.Fault { return w.BreakDisk(us) },
		Lasts: 4 * time.Second, Notice: within(chaos.NoticeRedis, us), Modes: away(), Again: chaos.Again,
	}.Once(t)
}

func TestRedisLogTorn(t *testing.T) {
	o := world()
	o.Disk = true
	chaos.Scenario{
		World: o, Profile: traffic.Steady(),
		Fault: func(w *chaos.World) chaos.Fault { return w.TearLog(us, 1371) },
		Lasts: 3 * time.Second, Notice: within(chaos.NoticeRedis, us), Modes: away(), Again: chaos.Again,
		Loses: []string{us},
	}.Once(t)
}

func TestRedisKeysGarbled(t *testing.T) {
	chaos.Scenario{
		World: world(), Profile: traffic.Steady(),
		Fault: func(w *chaos.World) chaos.Fault { return w.GarbleRedis(us, traffic.Edge+"-*") },
		Lasts: 4 * time.Second, Notice: within(chaos.NoticeRedis, us), Modes: away(), Again: chaos.Again,
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
