package global_test

import (
	"strings"
	"testing"
	"time"

	"github.com/regiond/regiond/internal/global"
	"github.com/regiond/regiond/limiter"
	"github.com/regiond/regiond/quota"
	"github.com/regiond/regiond/sync/wire"
)

// totalOf is the key of a tenant's usage total, as a limiter makes it.
func totalOf(tenant, policy string, l *quota.Limit) string {
	return limiter.NewShape([]*quota.Limit{l}).Totals(string(quota.AppendPrefix(nil, tenant)), policy, nil)[0]
}

// TestPartitionID: the id is that of the key without the length of its buckets, and of
// nothing less.
func TestPartitionID(t *testing.T) {
	key := wire.NewKey(nil, "test")
	sustained := quota.Limit{Name: "sustained", Units: 600, Window: time.Minute, Scope: quota.ScopeGlobal}
	if got, want := global.PartitionID(key, totalOf("acme", "p", &sustained)), key.ID("rl:{acme}:t.sustained:p:::"); got != want {
		t.Errorf("%x, want %x", got, want)
	}
	seen := map[uint64]string{}
	for _, tenant := range []string{"acme", "acme.60000000", "t.sustained.60000000", strings.Repeat("a", quota.MaxID)} {
		for _, policy := range []string{"p", "sustained"} {
			for _, name := range []string{"sustained", "p", "p-60000000"} {
				var ids []uint64
				for _, window := range []time.Duration{time.Second, time.Minute, quota.MaxWindow} {
					for _, buckets := range []int{0, 2, 11, quota.MaxGlobalBuckets} {
						l := quota.Limit{Name: name, Units: 600, Window: window, Scope: quota.ScopeGlobal, GlobalBuckets: buckets}
						ids = append(ids, global.PartitionID(key, totalOf(tenant, policy, &l)))
					}
				}
				for _, id := range ids {
					if id != ids[0] {
						t.Errorf("%.40s %s %s has the ids %x and %x", tenant, policy, name, ids[0], id)
						break
					}
				}
				whose := tenant + " " + policy + " " + name
				if other, taken := seen[ids[0]]; taken {
					t.Errorf("%s has the id of %s", whose, other)
				}
				seen[ids[0]] = whose
			}
		}
	}
}

// What no limiter has written keeps an id of its own.
func TestPartitionIDOfOtherKeys(t *testing.T) {
	key := wire.NewKey(nil, "test")
	for _, text := range []string{"", "t.a.1:", "rl:{acme}:l:p:::", "rl:{acme}:t.:p:::", "rl:{acme}:t.sustained:p:::", "rl:{acme}", "rl:{acme}:t.1", "}:t.a:"} {
		if got, want := global.PartitionID(key, text), key.ID(text); got != want {
			t.Errorf("%q: %x, want %x", text, got, want)
		}
	}
}

func TestPartitionIDAllocatesNothing(t *testing.T) {
	key := wire.NewKey(nil, "test")
	l := quota.Limit{Name: "sustained", Units: 600, Window: time.Minute, Scope: quota.ScopeGlobal}
	total := totalOf(strings.Repeat("a", quota.MaxID), "standard", &l)
	var id uint64
	if n := testing.AllocsPerRun(100, func() { id ^= global.PartitionID(key, total) }); n > 0 {
		t.Errorf("%v allocations", n)
	}
}
