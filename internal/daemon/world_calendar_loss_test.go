package daemon

import (
	"strings"
	"testing"
	"time"
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

// monthOf60 is the policies of the worlds below.
const monthOf60 = "policies:\n  - name: standard\n    limits: [{name: monthly, units: 60, calendar: month, scope: global}]\n" +
	"tenants:\n  default: {policy: standard}\n"

// spend is how many of n units a region's first process admits. It lets the others know.
func (s *nodeRegion) spend(n int) (admitted int) {
	for range n {
		if s.one().ask(1).Allowed {
			admitted++
		}
	}
	time.Sleep(2 * time.Second)
	return admitted
}

// TestWorldCalendarReplicaBehind: after a failover to a replica that lacks the last units of a period, what the region has
// admitted counts once: neither are those units admitted again, nor is the rest of the period lost to the tenant.
func TestWorldCalendarReplicaBehind(t *testing.T) {
	t.Parallel()
	onRedises(t, monthOf60, func(w *world) {
		w.startAll()
		eu, us := w.regions[0], w.regions[1]
		admitted := eu.spend(30)
		restore := eu.backup()
		admitted += eu.spend(2)
		restore()
		if admitted += eu.spend(3); admitted != 35 {
			t.Errorf("after the failover %d of 60 are admitted, want 35", admitted)
		}
		if admitted += us.spend(60) + eu.spend(60); admitted != 60 {
			t.Errorf("%d of 60 units of the month were admitted", admitted)
		}
	})
}

// TestWorldCalendarInMemory: regions that keep usage in memory, and start anew after a while without traffic, have learned from the
// others what they had used of the month.
func TestWorldCalendarInMemory(t *testing.T) {
	t.Parallel()
	inWorld(t, monthOf60, func(w *world) {
		w.startAll()
		admitted := w.regions[0].spend(30) + w.regions[1].spend(10)
		time.Sleep(10 * time.Minute)
		for _, s := range w.regions[:2] {
			s.one().kill()
			s.start("one").awaitReady()
			w.await("all see all", time.Minute, w.global)
			admitted += s.spend(15)
		}
		if admitted != 60 {
			t.Errorf("%d of 60 units of the month were admitted", admitted)
		}
	})
}
