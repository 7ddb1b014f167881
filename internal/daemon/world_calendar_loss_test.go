package daemon

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/regiond/regiond/test/meshtest"
)

// backup keeps what a region's Redis has of tenants, for restore.
func (s *nodeRegion) backup() (restore func()) {
	values, hashes := map[string]string{}, map[string]map[string]string{}
	for _, key := range s.redis.Keys() {
		switch {
		case !strings.HasPrefix(key, "rl:{"):
		case s.redis.Type(key) == "string":
			values[key], _ = s.redis.Get(key)
		case s.redis.Type(key) == "hash":
			fields, _ := s.redis.HKeys(key)
			hashes[key] = map[string]string{}
			for _, f := range fields {
				hashes[key][f] = s.redis.HGet(key, f)
			}
		}
	}
	return func() {
		for _, key := range s.redis.Keys() {
			if strings.HasPrefix(key, "rl:{") {
				s.redis.Del(key)
			}
		}
		for key, value := range values {
			if err := s.redis.Set(key, value); err != nil {
				s.w.t.Error(err)
			}
		}
		for key, fields := range hashes {
			for f, value := range fields {
				s.redis.HSet(key, f, value)
			}
		}
	}
}

// TestWorldCalendarReplicaBehind: after a failover to a replica that lacks the last units of a period, what the region has
// admitted counts once: neither are those units admitted again, nor is the rest of the period lost to the tenant.
func TestWorldCalendarReplicaBehind(t *testing.T) {
	t.Parallel()
	const units = 60
	policies := fmt.Sprintf("policies:\n  - name: standard\n"+
		"    limits: [{name: monthly, units: %d, calendar: month, scope: global}]\n"+
		"tenants:\n  default: {policy: standard}\n", units)
	onRedises(t, policies, func(w *world) {
		w.startAll()
		w.bus.SetAll(meshtest.Link{Latency: oneWay}, "eu-west", "us-east", "ap-south")
		eu, us := w.regions[0], w.regions[1]
		admitted := 0
		ask := func(s *nodeRegion, n int) {
			for range n {
				if s.one().ask(1).Allowed {
					admitted++
				}
			}
			time.Sleep(2 * time.Second)
		}
		ask(eu, 30)
		restore := eu.backup()
		ask(eu, 2)
		restore()
		ask(eu, 3)
		if admitted != 35 {
			t.Errorf("after the failover %d of 60 are admitted, want 35", admitted)
		}
		ask(us, 60)
		ask(eu, 60)
		if admitted != units {
			t.Errorf("%d of %d units of the month were admitted", admitted, units)
		}
	})
}
