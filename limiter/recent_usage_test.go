package limiter

import (
	"context"
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/regiond/regiond/quota"
)

// usageStart is where the clock of these tests begins, µs.
const usageStart = int64(1_795_198_405_260_197)

func seeded(charges []charge, after int64) int64 {
	sum := int64(0)
	for _, c := range charges {
		if c.us > after {
			sum += c.units
		}
	}
	return sum
}

// The reference model keeps every admission. Looking back at any point of the window,
// recent usage never has of less, and of more only by what was admitted up to
// one bucket earlier.
func TestRecentUsageMatchesReference(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		now := usageStart
		m := newRecentUsage(func() int64 { return now })
		var limits []*quota.Limit
		longest := int64(0)
		for i := range rapid.IntRange(1, 3).Draw(t, "limits") {
			l := &quota.Limit{Name: fmt.Sprint("l", i), Units: 100, Window: time.Duration(rapid.SampledFrom([]int64{1000, 15_000, 1_000_003, 60_000_000}).Draw(t, "W")) * time.Microsecond}
			limits, longest = append(limits, l), max(longest, l.WindowUS())
		}
		c := callOf(NewKeyPlan(limits), "acme", 1)
		bucket := (longest + recentBuckets - 2) / (recentBuckets - 1)
		var truth []charge
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			now += rapid.SampledFrom([]int64{0, 1, bucket - 1, bucket, bucket + 1, longest / 3, longest, 40 * longest}).Draw(t, "pass")
			if rapid.IntRange(0, 3).Draw(t, "charge") > 0 {
				c.Cost = rapid.Int64Range(1, 9).Draw(t, "cost")
				m.add(&c)
				truth = append(truth, charge{now, c.Cost})
			}
			got := m.seed(c.Keys[0])
			for i, g := range got {
				if g.us > now || i > 0 && g.us < got[i-1].us {
					t.Fatalf("charges %v at %d: in the future, or not in order", got, now)
				}
			}
			back := now - rapid.Int64Range(0, longest).Draw(t, "back")
			knows := seeded(got, back)
			if least, most := seeded(truth, back), seeded(truth, back-bucket); knows < least || knows > most {
				t.Fatalf("knows of %d units after now−%d, were %d, and %d a bucket earlier", knows, now-back, least, most)
			}
		}
	})
}

func TestRecentUsageForgetsOneTenant(t *testing.T) {
	m := newRecentUsage(func() int64 { return usageStart })
	for _, tenant := range []string{"acme", "acme2", "a"} {
		c := oneCall(tenant, 9, 4)
		m.add(&c)
	}
	m.forget("acme")
	for tenant, want := range map[string]int64{"acme": 0, "acme2": 4, "a": 4} {
		c := oneCall(tenant, 9, 1)
		if got := seeded(m.seed(c.Keys[0]), 0); got != want {
			t.Errorf("%s: %d units known, want %d", tenant, got, want)
		}
	}
}

// A reload to another window keeps what counts and nothing that had aged out.
func TestRecentUsageReshape(t *testing.T) {
	for _, row := range []struct {
		why  string
		idle time.Duration // between the last admission under the old window and the first under the new
		want int64
	}{
		{"at once", 0, 7 + 1},
		{"within the old window", 59 * time.Second, 7 + 1},
		{"long after", time.Hour, 1},
	} {
		now := usageStart
		m := newRecentUsage(func() int64 { return now })
		minute := oneCall("acme", 9, 7)
		m.add(&minute)
		now += row.idle.Microseconds()
		second := callOf(NewKeyPlan([]*quota.Limit{{Name: "minute", Units: 9, Window: time.Second}}), "acme", 1)
		m.add(&second)
		if got := seeded(m.seed(second.Keys[0]), now-time.Second.Microseconds()); got != row.want {
			t.Errorf("%s: %d units in the new window, want %d", row.why, got, row.want)
		}
	}
}

// A gcra bucket drains for longer than its window, and is remembered that long:
// 90 units at once, then one each second of which ten drain.
func TestRecentUsageRemembersABurst(t *testing.T) {
	now := usageStart
	m := newRecentUsage(func() int64 { return now })
	plan := NewKeyPlan([]*quota.Limit{{Name: "shaped", Units: 10, Window: time.Second, Algorithm: quota.GCRA, Burst: 100}})
	burst := callOf(plan, "acme", 90)
	m.add(&burst)
	local := NewMemoryStore(MemoryOptions{Now: func() int64 { return now }, seed: m.seed})
	peek := callOf(plan, "acme", 1)
	peek.Op = OpPeek
	for second := int64(1); second <= 12; second++ {
		now += time.Second.Microseconds()
		one := callOf(plan, "acme", 1)
		m.add(&one)
		local.renew()
		var v [1]Verdict
		if err := local.Decide(context.Background(), []Call{peek}, v[:]); err != nil {
			t.Fatal(err)
		}
		used := max(1, 90-9*second)
		if left := v[0].Limits[0].Remaining; left > 100-used || left < 100-used-7 { // a bucket of recent usage drains 7
			t.Errorf("after %d s: %d left, want %d or up to 7 less", second, left, 100-used)
		}
	}
}

// Random ids cannot make it grow; what goes is what has been quiet.
func TestRecentUsageBounded(t *testing.T) {
	now := usageStart
	m := newRecentUsage(func() int64 { return now })
	c := oneCall("acme", 9, 1)
	for i := range 300_000 {
		c.Keys = []string{fmt.Sprint("rl:{", i, "}:l:standard:::")}
		m.add(&c)
	}
	held := 0
	for i := range m.shards {
		held += len(m.shards[i].keys)
	}
	if most := recentShards * recentPerShard; held > most || held < most*9/10 {
		t.Errorf("%d keys are held, want at most %d and not much less", held, most)
	}
	if m.seed(c.Keys[0]) == nil {
		t.Error("the newest key was not kept")
	}
}
