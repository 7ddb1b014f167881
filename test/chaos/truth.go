//go:build linux

package chaos

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/regiond/regiond/test/chaos/judge"
	"github.com/regiond/regiond/test/chaos/traffic"
)

// settledWithin is how long after all regions count on each other again, and the
// traffic's end, each may take to know the others' admissions to the unit.
const settledWithin = 2 * time.Second

// span is units of which only bounds are known.
type span struct{ low, high int64 }

func (s span) holds(units int64) bool { return s.low <= units && units <= s.high }

// totals is units by region and tenant.
type totals map[string]map[string]span

// known is of which regions the truth is not all in Redis: whose Redis forgot it all, or
// lost the last of it, and whose regiond was down; and whether replies were other calls'.
type known struct {
	forgot, lost, down []string
	shifted            bool
}

// truth is what each region admitted of the ledger's tenants. What its Redis holds is
// true, and what was admitted without Redis is told by the answers. Of a region whose
// Redis forgot, only the answers tell. Whoever got no answer may have been admitted, and
// so may a call that Redis took too long for, where Redis cannot be asked any more. What
// a regiond admitted without Redis and had told nobody dies with it: that of regions that
// were down may be known or not. Of a Redis that lost the last of what it had confirmed,
// others know at least what it holds and at most what the answers tell.
func (w *World) truth(records []traffic.Record, k known) (totals, error) {
	all, tenants := totals{}, map[string]bool{}
	for _, r := range w.Regions {
		all[r.Name] = map[string]span{}
		if slices.Contains(k.forgot, r.Name) {
			continue
		}
		stored, err := r.stored(traffic.Ledger)
		if err != nil {
			return nil, err
		}
		for tenant, units := range stored {
			tenants[tenant] = true
			all[r.Name][tenant] = span{units, units}
			if slices.Contains(k.lost, r.Name) {
				all[r.Name][tenant] = span{low: units}
			}
		}
	}
	for i := range records {
		r := &records[i]
		if r.Class != traffic.Ledger || r.Bare {
			continue
		}
		tenants[r.Tenant] = true
		forgot, lost := slices.Contains(k.forgot, r.Region), slices.Contains(k.lost, r.Region)
		local, s := r.Answer.Basis == "local", all[r.Region][r.Tenant]
		if r.Admitted() && (forgot || lost || local) {
			s.high += r.Cost
			if forgot && !local || local && !slices.Contains(k.down, r.Region) {
				s.low += r.Cost
			}
		}
		if r.Err != "" || (forgot || lost) && r.Answer.Reason == "redis_timeout" || lost && r.Answer.Reason == "redis_down" {
			s.high += r.Cost
		}
		all[r.Region][r.Tenant] = s
	}
	for tenant := range tenants {
		for _, of := range all {
			if _, ok := of[tenant]; !ok {
				of[tenant] = span{} // a region that admitted nothing says so
			}
		}
	}
	return all, nil
}

// stored is the usage of a class in a region's Redis: the units of all buckets of the hashes rl:{tenant}:t.….
func (r *Region) stored(class string) (map[string]int64, error) {
	ctx := context.Background()
	keys, err := r.store.Keys(ctx, "rl:{"+class+"-*}:t.*").Result()
	if err != nil {
		return nil, fmt.Errorf("%s: totals in Redis: %w", r.Name, err)
	}
	units := map[string]int64{}
	for _, key := range keys {
		values, err := r.store.HVals(ctx, key).Result()
		if err != nil {
			return nil, fmt.Errorf("%s: %s in Redis: %w", r.Name, key, err)
		}
		_, rest, _ := strings.Cut(key, "{")
		tenant, _, _ := strings.Cut(rest, "}")
		for _, value := range values {
			n, err := strconv.ParseInt(value, 10, 64)
			if err != nil {
				return nil, fmt.Errorf("%s: %s in Redis has %q", r.Name, key, values)
			}
			units[tenant] += n
		}
	}
	return units, nil
}

// differences are where regions believe something else of each other than the truth, or
// than a third does.
func (w *World) differences(want totals) (wrong []string, asked, exact int) {
	said := map[string]int64{} // by "region tenant": what the first that was asked believes
	for _, r := range w.Regions {
		for tenant := range want[r.Name] {
			peers, err := r.believes(tenant)
			if err != nil {
				wrong = append(wrong, err.Error())
				continue
			}
			for _, other := range w.Regions {
				if other == r {
					continue
				}
				asked++
				got, truth, key := peers[other.Name], want[other.Name][tenant], other.Name+" "+tenant
				if truth.low == truth.high {
					exact++
				}
				before, ok := said[key]
				if !ok {
					said[key], before = got, got
				}
				switch {
				case !truth.holds(got):
					wrong = append(wrong, fmt.Sprintf("%s believes that %s admitted %d of %s: it admitted %d to %d",
						r.Name, other.Name, got, tenant, truth.low, truth.high))
				case got != before:
					wrong = append(wrong, fmt.Sprintf("%s believes that %s admitted %d of %s, and another %d", r.Name, other.Name, got, tenant, before))
				}
			}
		}
	}
	return wrong, asked, exact
}

// believes asks a region what it thinks that the others admitted of a tenant.
func (r *Region) believes(tenant string) (map[string]int64, error) {
	l, err := r.explained(tenant)
	peers := map[string]int64{}
	for _, p := range l.Peers {
		peers[p.Region] = p.Estimate
	}
	return peers, err
}

// explained is the used part of what a region explains of a limit.
type explained struct {
	Bound struct {
		Share int64 `json:"share"`
	} `json:"bound"`
	Peers []struct {
		Region   string `json:"region"`
		Estimate int64  `json:"estimate"`
	} `json:"peers"`
}

// explained asks a region about the one limit of a tenant.
func (r *Region) explained(tenant string) (explained, error) {
	var usage struct {
		Explain struct {
			Limits []explained `json:"limits"`
		} `json:"explain"`
	}
	err := r.ask(r.target.Regiond, "GET", "/v1/usage/"+tenant+"?explain=1", "", &usage)
	if err == nil && len(usage.Explain.Limits) != 1 {
		err = fmt.Errorf("%s explains %d limits of %s", r.Name, len(usage.Explain.Limits), tenant)
	}
	if err != nil {
		return explained{}, err
	}
	return usage.Explain.Limits[0], nil
}

// Settled insists that soon every region believes of every other, to the unit, what it
// admitted, and that its Redis holds just that. It returns how long that took and how many estimates there were whose truth
// is known to the unit.
func (w *World) Settled(records []traffic.Record, k known) (took time.Duration, exact int, objects []string) {
	want, err := w.truth(records, k)
	if err != nil {
		return 0, 0, []string{err.Error()}
	}
	for _, r := range w.Regions {
		if slices.Contains(k.forgot, r.Name) || slices.Contains(k.lost, r.Name) {
			continue
		}
		for _, class := range []string{traffic.Ledger, traffic.Dear} {
			stored, err := r.stored(class)
			if err != nil {
				return 0, 0, []string{err.Error()}
			}
			objects = append(objects, judge.Charged(records, class, r.Name, stored, k.shifted)...)
		}
	}
	began := w.History.Now()
	var wrong []string
	asked := 0
	// The question itself may take long, so the last one is asked after the time is over.
	for {
		late := w.History.Now()-began > settledWithin
		wrong, asked, exact = w.differences(want)
		if len(wrong) == 0 || late {
			break
		}
	}
	took = w.History.Now() - began
	if asked == 0 {
		wrong = append(wrong, "there was no tenant")
	}
	for i := range wrong {
		wrong[i] = "settled: " + wrong[i]
	}
	if len(wrong) > 5 {
		wrong = append(wrong[:5], fmt.Sprintf("settled: %d of %d estimates are wrong", len(wrong), asked))
	}
	return took, exact, append(objects, wrong...)
}
