package judge_test

import (
	"slices"
	"testing"
	"time"

	"github.com/regiond/regiond/quota"
	"github.com/regiond/regiond/test/chaos/judge"
	"github.com/regiond/regiond/test/chaos/traffic"
)

// TestLentAndOpenBite: a region that is closed from 1.1 to 1.4 s, and has its first loan at 1.5 s.
func TestLentAndOpenBite(t *testing.T) {
	binds := func(at time.Duration, binds string, allowed bool) traffic.Record {
		r := asked("a", traffic.Month, "x", at, 1, allowed)
		r.Answer.Explain.Limits = append(r.Answer.Explain.Limits, traffic.Bound{})
		r.Answer.Explain.Limits[0].Bound.Binds = binds
		return r
	}
	records := []traffic.Record{
		binds(900*millisecond, "share", true), binds(1100*millisecond, "closed", false), binds(1400*millisecond, "closed", false),
		binds(1450*millisecond, "burnt", false), binds(1500*millisecond, "burnt", true),
	}
	lent := func(records []traffic.Record, within time.Duration) []string {
		_, objects := judge.Lent(records, traffic.Month, "a", time.Second, within)
		return objects
	}
	open := func(most time.Duration) []string {
		_, objects := judge.Open(records, traffic.Month, "a", most)
		return objects
	}
	bites(t, lent(records, time.Second), lent(records, 400*millisecond), "after its loss")
	bites(t, lent(records, time.Second), lent(records[:4], time.Second), "admits no unit")
	bites(t, open(time.Second), open(200*millisecond), "closes it")
}

// TestPeriodsBite: ten units of an hour in two regions, one of which asks for them alone, and one by the clock of the next hour.
func TestPeriodsBite(t *testing.T) {
	hours := &quota.Calendar{Unit: quota.CalendarHour, Zone: time.UTC, Anchor: 1}
	at := func(region, tenant string, hour int64, allowed bool) traffic.Record {
		r := asked(region, traffic.Hour, tenant, time.Second, 1, allowed)
		r.Answer.Explain.StoreTimeUS = (500_000*3600 + hour*3600 + 1) * 1_000_000
		return r
	}
	says := func(records []traffic.Record, stored judge.Periods) []string {
		all := judge.Periods{}
		objects := all.Answers(records, hours, traffic.Hour)
		all.Stored(stored)
		_, more := all.Within(10)
		_, left := all.Left(records, hours, 10, "a", "x")
		return slices.Concat(objects, more, left)
	}
	full := []traffic.Record{at("b", "x", 0, true), at("b", "x", 1, true), at("a", "y", 0, true)}
	for range 9 {
		full = append(full, at("a", "x", 0, true))
	}
	for range 3 {
		full = append(full, at("a", "x", 0, false))
	}
	hour := hours.At(at("a", "x", 0, true).Answer.Explain.StoreTimeUS).Number
	counted := func(region string, units int64) judge.Periods {
		return judge.Periods{{Tenant: "x", Region: region, Period: hour}: units}
	}
	with := func(r traffic.Record) []traffic.Record { return append(slices.Clone(full), r) }
	good := says(full, counted("a", 9))
	bites(t, good, says(with(at("b", "x", 0, true)), nil), "the bound is 10")
	bites(t, good, says(full, counted("b", 2)), "the bound is 10")
	local := at("b", "x", 2, true)
	local.Answer.Basis = "local"
	bites(t, good, says(with(local), nil), "not by its Redis")
	few := slices.Clone(full)
	few[3].Answer.Allowed, few[4].Answer.Allowed = false, false
	bites(t, good, says(few, nil), "admits 8 of the 10")
}

// TestBoundBites: ten units in two regions, in a window of a second whose bound is ten.
func TestBoundBites(t *testing.T) {
	const window = time.Second
	phases := []judge.Phase{{Span: judge.Span{To: time.Hour}, Units: 10}}
	trueUS := func(r *traffic.Record) int64 {
		if us := r.Answer.Explain.StoreTimeUS; us < wallUS(0) {
			return us + 2*time.Hour.Microseconds()
		}
		return r.Answer.Explain.StoreTimeUS
	}
	says := func(records []traffic.Record, stored judge.Admissions, phases []judge.Phase) []string {
		all := judge.Admissions{}
		objects := all.Answers(records, wallUS, trueUS, traffic.Strict)
		all.Stored(stored)
		_, more := judge.Bound(all, wallUS, traffic.Strict, window, phases)
		return append(objects, more...)
	}
	var full []traffic.Record
	for i := range 10 {
		full = append(full, asked([]string{"a", "b"}[i%2], traffic.Strict, "x", time.Duration(i)*50*millisecond, 1, true))
	}
	with := func(more ...traffic.Record) []traffic.Record { return append(slices.Clone(full), more...) }
	// What a store holds is in the answers too, and a window is a half of a thousandth shorter.
	good := says(with(
		asked("a", traffic.Strict, "x", window-millisecond, 1, false),
		asked("a", traffic.Strict, "x", window-window/2000, 1, true),
	), judge.Admissions{{Region: "a", US: wallUS(0) + 500}: 1}, phases)
	stepped := asked("b", traffic.Strict, "x", 600*millisecond, 1, true)
	stepped.Answer.Explain.StoreTimeUS -= 2 * time.Hour.Microseconds()
	local := asked("b", traffic.Strict, "x", 2*time.Second, 1, true)
	local.Answer.Basis = "local"
	for name, bad := range map[string][]string{
		"one unit more":                 says(with(asked("b", traffic.Strict, "x", 900*millisecond, 1, true)), nil, phases),
		"a store holds more":            says(full, judge.Admissions{{Region: "a", US: wallUS(0) + 500}: 2}, phases),
		"an answer was lost":            says(full, judge.Admissions{{Region: "a", US: wallUS(900 * millisecond)}: 1}, phases),
		"a clock went back":             says(with(stepped), nil, phases),
		"a smaller bound from a moment": says(full, nil, []judge.Phase{{Span: judge.Span{To: 400 * millisecond}, Units: 10}, {Span: judge.Span{From: 400 * millisecond, To: window}, Units: 9}}),
	} {
		t.Run(name, func(t *testing.T) { bites(t, good, bad, "the bound is") })
	}
	bites(t, good, says(full[:8], nil, phases), "not tested")
	bites(t, good, says(with(local), nil, phases), "not by its Redis")
}
