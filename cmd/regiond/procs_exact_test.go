//go:build unix

package main

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"slices"
	"sync"
	"testing"
	"time"
)

// testProcsExact: at rest the regions together admit L, and not a unit more.
func testProcsExact(t *testing.T, binary string) {
	g := newGlobe(t, binary, true)
	spend := func(p *place, cost int64) answer {
		t.Helper()
		return p.first.ask(t, http.MethodPost, "/v1/check", fmt.Sprintf(`{"tenant":"acme","cost":%d}`, cost))
	}
	want := admitted{}
	for _, p := range g.regions {
		want[p.name] = map[string]int64{"acme": 0}
	}
	for i, cost := range []int64{1700, procsUnits - 1700 - 1, 1} {
		p := g.regions[i]
		spend(p, cost).is(t, http.StatusOK)
		want[p.name]["acme"] = cost
		g.settles(t, p.name+" spent", time.Now(), want)
	}
	for _, p := range g.regions {
		a := spend(p, 1)
		a.is(t, http.StatusTooManyRequests)
		if d := a.decision(t); d.Mode != "global" || d.Remaining != 0 {
			t.Errorf("%s denies: %+v", p.name, d)
		}
	}
}

// testProcsWeights: each file is changed by itself, as a rollout does. Until all
// have the new weights nobody claims more than its smaller part.
func testProcsWeights(t *testing.T, binary string) {
	g := newGlobe(t, binary, true)
	old := []int64{1, 1, 1}
	for _, weights := range [][]int64{{8, 1, 1}, {1, 1, 8}, {1, 1, 1}} {
		claimed := g.claims(t)
		for i, p := range g.regions {
			src, err := os.ReadFile(p.file)
			if err != nil {
				t.Fatal(err)
			}
			put(t, p.file, reweighed(t, string(src), old, weights))
			// All see how far the rollout is before the next file changes.
			more := i < len(g.regions)-1
			g.everywhere(t, "the rollout is seen", func(v *regionsView) bool { return drifts(v) == more })
		}
		old = weights
		whole := time.Now()
		eventually(t, func() error {
			for i, p := range g.regions {
				b, err := p.first.believes("acme")
				if want := procsUnits * weights[i] / (weights[0] + weights[1] + weights[2]); err != nil || b.Explain.Limits[0].Part != want {
					return fmt.Errorf("%s: part %+v, want %d (%w)", p.name, b.Explain.Limits, want, err)
				}
			}
			return nil
		})
		took := time.Since(whole).Round(time.Millisecond)
		sums := claimed()
		if len(sums) == 0 {
			t.Fatalf("weights %v: no moment was seen", weights)
		}
		if most := slices.Max(sums); most > procsUnits {
			t.Errorf("weights %v: the parts summed up to %d of %d", weights, most, procsUnits)
		}
		t.Logf("weights %v apply %v after the last file was read; in %d moments meanwhile the parts summed up to %d to %d",
			weights, took, len(sums), slices.Min(sums), slices.Max(sums))
	}
	g.global(t, "the last change", time.Now())
}

// claims has what all three claim together noted until the returned function is
// called, which gives the sums.
func (g *globe) claims(t *testing.T) (stop func() []int64) {
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan []int64, 1)
	go func() {
		var sums []int64
		for ctx.Err() == nil {
			if sum, ok := g.parts(); ok {
				sums = append(sums, sum)
			}
		}
		done <- sums
	}()
	stop = sync.OnceValue(func() []int64 {
		cancel()
		return <-done
	})
	t.Cleanup(func() { stop() })
	return stop
}

// reweighed replaces the weights of the regions, in their order.
func reweighed(t *testing.T, src string, old, weights []int64) string {
	t.Helper()
	for i, name := range procsNames() {
		src = replace(t, src, fmt.Sprintf("name: %s\n    weight: %d\n", name, old[i]), fmt.Sprintf("name: %s\n    weight: %d\n", name, weights[i]))
	}
	return src
}

// drifts tells whether a process sees more than one configuration.
func drifts(v *regionsView) bool { return v.Drift != nil && len(v.Drift.Hashes) > 1 }

// parts is the sum of what all three claim at one moment. It is not ok when the
// three answers may be of different moments: they are only of one when asking again,
// in the same order, gives the same.
func (g *globe) parts() (sum int64, ok bool) {
	var said [2][]string
	for round := range said {
		for _, p := range g.regions {
			b, err := p.first.believes("acme")
			if err != nil {
				return 0, false
			}
			part := b.Explain.Limits[0].Part
			said[round] = append(said[round], fmt.Sprint(b.Explain.ConfigHash, part))
			sum += part
		}
	}
	return sum / 2, slices.Equal(said[0], said[1])
}
