//go:build unix

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// belief is what tests look at in GET /v1/usage/{tenant}?explain=1.
type belief struct {
	decision
	Explain struct {
		ConfigHash string `json:"config_hash"`
		Limits     []struct {
			Part  int64 `json:"part"`
			Lost  int64 `json:"lost"`
			Peers []struct {
				Region   string `json:"region"`
				Estimate int64  `json:"estimate"`
			} `json:"peers"`
		} `json:"limits"`
	} `json:"explain"`
}

// believes asks one process what it believes of a tenant.
func (p *process) believes(tenant string) (belief, error) {
	var u belief
	a, err := p.try(context.Background(), http.MethodGet, "/v1/usage/"+tenant+"?explain=1", "")
	if err != nil {
		return u, err
	}
	if err := json.Unmarshal([]byte(a.body), &u); err != nil || a.status != http.StatusOK || len(u.Explain.Limits) != 1 {
		return u, fmt.Errorf("usage of %s: %d %s", tenant, a.status, a.body)
	}
	return u, nil
}

// admitted is what each region admitted of each tenant.
type admitted map[string]map[string]int64

// truth is found out once the load is over. What a region's Redis holds is true,
// and what was admitted without it is told by the answers. Of a region whose Redis
// was emptied only the answers tell: there, tenants with a request whose outcome
// nobody was told of are left out everywhere.
func (g *globe) truth(t *testing.T, emptied ...string) admitted {
	t.Helper()
	l := g.tally
	l.mu.Lock()
	defer l.mu.Unlock()
	all, left := admitted{}, map[string]bool{}
	for _, p := range g.regions {
		all[p.name] = p.stored(t)
		for tenant, s := range l.spent[p.name] {
			switch {
			case slices.Contains(emptied, p.name):
				left[tenant] = left[tenant] || s.uncertain
				all[p.name][tenant] = s.units
			case !s.uncertain && all[p.name][tenant] != s.units-s.local:
				t.Errorf("%s: Redis has %d units of %s, the answers say %d", p.name, all[p.name][tenant], tenant, s.units-s.local)
				fallthrough
			default:
				all[p.name][tenant] += s.local
			}
		}
	}
	for tenant := range left {
		if left[tenant] {
			for _, p := range g.regions {
				delete(all[p.name], tenant)
			}
		}
	}
	return all
}

// stored is what the region's Redis says of the totals: the sum of all buckets of
// 'epoch:bucket:units:earlier:…' under rl:{tenant}:t.….
func (p *place) stored(t *testing.T) map[string]int64 {
	t.Helper()
	units, redis := map[string]int64{}, p.redis.Client()
	keys, err := redis.Keys(t.Context(), "rl:{*}:t.*").Result()
	if err != nil {
		t.Fatal(err)
	}
	for _, key := range keys {
		value, err := redis.Get(t.Context(), key).Result()
		if err != nil {
			t.Fatal(err)
		}
		_, rest, _ := strings.Cut(key, "{")
		tenant, _, _ := strings.Cut(rest, "}")
		for _, field := range strings.Split(value, ":")[2:] {
			n, err := strconv.ParseInt(field, 10, 64)
			if err != nil {
				t.Fatalf("%s is %q", key, value)
			}
			units[tenant] += n
		}
	}
	return units
}

// question is one that has not been answered right yet.
type question struct {
	who    *process
	region string
	tenant string
}

// settles waits until every process of the given regions, of all when none is
// given, believes of each other region what that region admitted, unit by unit. It
// may take two seconds from the given moment on, and as long again as asking takes.
//
// Whoever is asked looks into its own Redis to answer, and would tell the others of
// what it finds there: where that is not to help, the others are asked first.
func (g *globe) settles(t *testing.T, since string, from time.Time, want admitted, asked ...*place) {
	t.Helper()
	if len(asked) == 0 {
		asked = g.regions
	}
	began, all := time.Now(), questions(want, asked)
	missing := g.ask(all, want)
	passed, late := time.Since(began), len(missing)
	for time.Since(from) < 20*time.Second && len(missing) > 0 {
		missing = g.ask(missing, want)
	}
	took := time.Since(from)
	for i, q := range missing {
		if i < 5 {
			u, _ := q.who.believes(q.tenant)
			t.Errorf("%s believes %+v of %s; admitted were %s", q.region, u.Explain.Limits, q.tenant, want.of(q.tenant))
		}
	}
	pairs := len(all)
	t.Logf("%d of %d estimates equal what was admitted %v after %s; asking all takes %v, and %d were not right when first asked",
		2*(pairs-len(missing)), 2*pairs, took.Round(time.Millisecond), since, passed.Round(time.Millisecond), 2*late)
	if took > 2*time.Second+passed {
		t.Errorf("that is late: 2s and the asking are allowed")
	}
}

func (w admitted) of(tenant string) string {
	b := &strings.Builder{}
	for _, name := range slices.Sorted(maps.Keys(w)) {
		fmt.Fprintf(b, "%s %d ", name, w[name][tenant])
	}
	return b.String()
}

// questions are all that there are for some regions.
func questions(want admitted, asked []*place) []question {
	tenants := map[string]bool{}
	for _, of := range want {
		for tenant := range of {
			tenants[tenant] = true
		}
	}
	var all []question
	for _, p := range asked {
		p.mu.Lock()
		for _, one := range p.doors {
			for tenant := range tenants {
				all = append(all, question{one, p.name, tenant})
			}
		}
		p.mu.Unlock()
	}
	return all
}

// ask returns the questions that are not answered right, after putting each once.
func (g *globe) ask(questions []question, want admitted) (wrong []question) {
	const askers = 8
	var mu sync.Mutex
	var wg sync.WaitGroup
	for i := range askers {
		wg.Go(func() {
			for k := i; k < len(questions); k += askers {
				q := questions[k]
				if u, err := q.who.believes(q.tenant); err != nil || !right(&u, q.tenant, want) {
					mu.Lock()
					wrong = append(wrong, q)
					mu.Unlock()
				}
			}
		})
	}
	wg.Wait()
	return wrong
}

// right reports whether all estimates are what was admitted.
func right(u *belief, tenant string, want admitted) bool {
	peers := u.Explain.Limits[0].Peers
	for _, p := range peers {
		if p.Estimate != want[p.Region][tenant] {
			return false
		}
	}
	return len(peers) == len(procsNames())-1
}

// left insists, once all see each other, that in every region as much remains as
// nobody has spent: what a Redis has forgotten is not handed out again.
func (g *globe) left(t *testing.T, want admitted) {
	t.Helper()
	tenants := map[string]int64{}
	for _, of := range want {
		for tenant, units := range of {
			tenants[tenant] += units
		}
	}
	wrong := func() (said string) {
		for _, p := range g.regions {
			for tenant, units := range tenants {
				u, err := p.first.believes(tenant)
				if err != nil || u.Remaining != procsUnits-units {
					said = fmt.Sprintf("%s: %d units of %s remain, %d were admitted by all: %s, %v %+v",
						p.name, u.Remaining, tenant, units, want.of(tenant), err, u.Explain.Limits)
				}
			}
		}
		return said
	}
	// The first question tells a process what its Redis has forgotten; the second
	// is answered knowing that.
	if first := wrong(); first != "" {
		if second := wrong(); second != "" {
			t.Error(second)
		}
	}
}

// regions is what GET /v1/regions says.
func (p *process) regions() (regionsView, error) {
	var v regionsView
	a, err := p.admin.try(context.Background(), http.MethodGet, "/v1/regions", "")
	if err == nil {
		err = json.Unmarshal([]byte(a.body), &v)
	}
	return v, err
}

// everywhere waits until something holds of what every process sees, and returns
// when it did. The slowest that is waited for is a death noticed by gossip.
func (g *globe) everywhere(t *testing.T, what string, holds func(v *regionsView) bool) time.Time {
	t.Helper()
	deadline := time.Now().Add(40 * time.Second)
	again := time.NewTicker(10 * time.Millisecond)
	defer again.Stop()
	for ; ; <-again.C {
		said := ""
		for _, p := range g.regions {
			p.mu.Lock()
			doors := slices.Clone(p.doors)
			p.mu.Unlock()
			for _, one := range doors {
				v, err := one.regions()
				if err != nil || !holds(&v) {
					said = fmt.Sprintf("%s/%s: %+v, %v", p.name, v.Instance, v, err)
				}
			}
		}
		if said == "" {
			return time.Now()
		}
		if time.Now().After(deadline) {
			t.Fatalf("not within 40s: %s: %s", what, said)
		}
	}
}

// connected waits until all are connected to NATS, since later than the fault.
func (g *globe) connected(t *testing.T, fault time.Time) time.Time {
	t.Helper()
	return g.everywhere(t, "connected to NATS", func(v *regionsView) bool {
		return v.NATS != nil && v.NATS.Connected && v.NATS.Since.After(fault)
	})
}

// global waits until every process counts on every region.
func (g *globe) global(t *testing.T, since string, from time.Time) {
	t.Helper()
	at := g.everywhere(t, "mode global", func(v *regionsView) bool { return v.Mode.Mode == "global" })
	t.Logf("mode global %v after %s", at.Sub(from).Round(time.Millisecond), since)
}
