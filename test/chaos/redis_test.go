//go:build chaos && linux

package chaos_test

import (
	"testing"
	"time"

	"github.com/regiond/regiond/test/chaos"
	"github.com/regiond/regiond/test/chaos/traffic"
)

// Nothing is wrong: what the machine and the lines do by themselves.
func TestNothingWrong(t *testing.T) {
	chaos.Scenario{
		World: world(), Profile: traffic.Steady(),
		Fault: func(*chaos.World) chaos.Fault {
			return chaos.Fault{Name: "nothing", Inject: func() error { return nil }, Heal: func() error { return nil }}
		},
		Lasts: 3 * time.Second, Modes: blind(), Unmoved: chaos.Names(), Again: chaos.Again,
	}.Run(t)
}

func TestRedisKilled(t *testing.T) {
	chaos.Scenario{
		World: world(), Profile: traffic.Steady(),
		Fault: func(w *chaos.World) chaos.Fault { return w.KillRedis(us) },
		Lasts: 3 * time.Second, Notice: within(chaos.NoticeRedis, us), Modes: away(), Again: chaos.Again,
		Forgets: []string{us},
	}.Run(t)
}

func TestRedisFrozen(t *testing.T) {
	chaos.Scenario{
		World: world(), Profile: traffic.Steady(),
		Fault: func(w *chaos.World) chaos.Fault { return w.FreezeRedis(us) },
		Lasts: 3 * time.Second, Notice: within(chaos.NoticeRedis, us), Modes: away(), Again: chaos.Again,
	}.Run(t)
}

func TestRedisSlow(t *testing.T) {
	o := world()
	o.Proxy = true
	chaos.Scenario{
		World: o, Profile: traffic.Steady(),
		Fault: func(w *chaos.World) chaos.Fault { return w.SlowRedis(us, 200*time.Millisecond) },
		Lasts: 3 * time.Second, Notice: within(chaos.NoticeRedis, us), Modes: away(), Again: chaos.Again,
	}.Run(t)
}

func TestRedisFlushed(t *testing.T) {
	chaos.Scenario{
		World: world(), Profile: traffic.Steady(),
		Fault: func(w *chaos.World) chaos.Fault { return w.FlushRedis(us) },
		Lasts: 2 * time.Second, Modes: blind(), Unmoved: chaos.Names(), Again: chaos.Again,
		Forgets: []string{us},
	}.Run(t)
}

func TestRedisOutOfMemory(t *testing.T) {
	chaos.Scenario{
		World: world(), Profile: traffic.Steady(),
		Fault: func(w *chaos.World) chaos.Fault { return w.FillRedis(us) },
		Lasts: 3 * time.Second, Notice: within(chaos.NoticeRedis, us), Modes: away(), Again: chaos.Again,
	}.Run(t)
}

func TestRedisClockForward(t *testing.T) { stepped(t, time.Hour) }

func TestRedisClockBack(t *testing.T) { stepped(t, -2*time.Hour) }

// stepped: what was counted by the old time may be counted again after a step forward,
// which is the loss that a step is. Nobody is denied for longer than a window.
func stepped(t *testing.T, d time.Duration) {
	t.Helper()
	o := world()
	o.Clock = true
	chaos.Scenario{
		World: o, Profile: traffic.Steady(),
		Fault: func(w *chaos.World) chaos.Fault { return w.StepRedis(us, d) },
		Lasts: 3 * time.Second, Modes: blind(), Again: chaos.Again, Stepped: true, Forgets: []string{us},
	}.Run(t)
}
