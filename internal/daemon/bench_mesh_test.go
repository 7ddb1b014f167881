//go:build unix

package daemon

import (
	"encoding/json"
	"fmt"
	"slices"
	"testing"
	"time"
)

const (
	// benchRate is how many checks arrive in a second.
	benchRate = 2_000
	// benchRounds is how often a regiond is measured alone and beside the mesh.
	benchRounds = 5
	// benchWarm and benchLong are how long it is asked without and with being
	// measured.
	benchWarm = 1500 * time.Millisecond
	benchLong = 5 // seconds
)

// BenchmarkBesideMesh is what a check over HTTP takes while regiond publishes and
// folds what the goals speak of, over what it takes where there is no mesh: the same
// policy on the same Redis, in turns. Each ratio is the median over the rounds. Run
// it with -benchtime 1x: it takes more than a minute.
func BenchmarkBesideMesh(b *testing.B) {
	s := newBenchStage(b, benchCrowd{Count: 100_000, Changed: 1_000, Buckets: 1}, 20_000)
	for b.Loop() {
		var alone, beside []benchRun
		for round := range benchRounds {
			if round%2 == 0 {
				alone = append(alone, s.run(b, false))
			}
			beside = append(beside, s.run(b, true))
			if round%2 != 0 {
				alone = append(alone, s.run(b, false))
			}
		}
		reportRuns(b, alone, beside)
	}
}

// benchRun is what one regiond showed.
type benchRun struct {
	p50, p99 float64 // ms
	second   float64 // p99 of the median second: one in which the machine did something else does not count
	cpu      float64 // of regiond, µs for each check, all that it does meanwhile included
	wrong    int     // answers that were not as they should have been
}

func (s *benchStage) run(b *testing.B, meshed bool) benchRun {
	b.Helper()
	sc := s.open(b, meshed)
	defer sc.close()
	openLoop(benchRate, benchWarm, sc.door.check)
	before := sc.metric(b, "process_cpu_seconds_total", "")
	all, seconds := &benchLatencies{}, []float64(nil)
	for range benchLong {
		sc.door.seen = &benchLatencies{}
		openLoop(benchRate, time.Second, sc.door.check)
		seconds = append(seconds, ms(sc.door.seen.quantile(0.99)))
		all.join(sc.door.seen)
	}
	spent := sc.metric(b, "process_cpu_seconds_total", "") - before
	r := benchRun{
		p50: ms(all.quantile(0.5)), p99: ms(all.quantile(0.99)), second: median(seconds),
		cpu: spent * 1e6 / float64(len(all.took)), wrong: len(all.wrong),
	}
	if r.wrong > 0 {
		b.Logf("meshed %v: %d answers such as %s", meshed, r.wrong, all.wrong[0])
	}
	return r
}

func reportRuns(b *testing.B, alone, beside []benchRun) {
	wrong := 0
	for i := range alone {
		wrong += alone[i].wrong + beside[i].wrong
		b.Logf("alone %+v, beside the mesh %+v", alone[i], beside[i])
	}
	for _, f := range []struct {
		name string
		of   func(r *benchRun) float64
	}{
		{"p99", func(r *benchRun) float64 { return r.p99 }},
		{"second", func(r *benchRun) float64 { return r.second }},
		{"p50", func(r *benchRun) float64 { return r.p50 }},
		{"cpu", func(r *benchRun) float64 { return r.cpu }},
	} {
		var ratios, without, with []float64
		for i := range alone {
			a, m := f.of(&alone[i]), f.of(&beside[i])
			ratios, without, with = append(ratios, m/a), append(without, a), append(with, m)
		}
		b.ReportMetric(median(ratios), f.name+"-ratio")
		b.ReportMetric(median(without), f.name+"-alone")
		b.ReportMetric(median(with), f.name+"-beside")
	}
	b.ReportMetric(float64(wrong), "wrong-answers")
}

// median is the middle one, or the lower of two.
func median(all []float64) float64 {
	return slices.Sorted(slices.Values(all))[(len(all)-1)/2]
}

// TestBenchBesideMesh: what the benchmark calls a busy mesh is one. What changes
// with both peers comes to count in answers, and what changes here goes out.
func TestBenchBesideMesh(t *testing.T) {
	const tenants = 40
	s := newBenchStage(t, benchCrowd{Count: 200, Changed: 20, Buckets: 1}, tenants)
	sc := s.open(t, true)
	defer sc.close()
	openLoop(200, time.Second, sc.door.check)
	if n, wrong := len(sc.door.seen.took), sc.door.seen.wrong; n != 200 || len(wrong) > 100 {
		t.Errorf("%d answers to 200 checks, %d of them wrong: %.1q", n, len(wrong), wrong)
	}
	for i := range tenants { // each changes once a second
		eventually(t, func() error { return sc.door.believes(i, benchUnits(i, 1)) })
	}
	eventually(t, func() error {
		v, err := sc.regions()
		if err == nil && (v.Totals.Series != 200 || v.Totals.UnsentMS > 1000) {
			err = fmt.Errorf("it knows %+v", *v.Totals)
		}
		return err
	})
	if sc.metric(t, "regiond_sync_published_bytes_total", `kind="usage"`) == 0 {
		t.Error("nothing goes out")
	}
}

// believes tells whether both peers are known to have used so many units at least.
func (a *benchAsker) believes(tenant int, units int64) error {
	status, body, err := a.get("/v1/usage/" + benchTenant(tenant) + "?explain=1")
	if err != nil {
		return err
	}
	var u belief
	if err := json.Unmarshal(body, &u); err != nil || len(u.Explain.Limits) != 1 || len(u.Explain.Limits[0].Peers) < 2 {
		return fmt.Errorf("%d %s", status, body)
	}
	for _, p := range u.Explain.Limits[0].Peers {
		if p.Region != benchSelf && p.Estimate < units {
			return fmt.Errorf("%s is believed to have used %d of %s", p.Region, p.Estimate, benchTenant(tenant))
		}
	}
	return nil
}

// belief is what a process believes of a partition.
type belief struct {
	Explain struct {
		Limits []struct {
			Peers []struct {
				Region   string `json:"region"`
				Estimate int64  `json:"estimate"`
			} `json:"peers"`
		} `json:"limits"`
	} `json:"explain"`
}
