package judge_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/regiond/regiond/test/chaos/judge"
	"github.com/regiond/regiond/test/chaos/traffic"
)

// envoyCalls are right: b is without Redis from the third second to the fifth, and c's is busy then.
func envoyCalls() (e judge.Envoys, calls []judge.Call, records []traffic.Record) {
	e = judge.Envoys{
		Units: 2, Turn: time.Second, Before: 3 * time.Second, Busy: "c", Deadline: 20 * millisecond, Margin: 3 * millisecond,
		Away: map[string]judge.Span{"b": {From: 3 * time.Second, To: 5 * time.Second}},
	}
	for at := time.Duration(0); at < 6*time.Second; at += 100 * millisecond {
		for _, region := range []string{"a", "b", "c"} {
			records = append(records, traffic.Record{Region: region, Bare: true, Due: at, Call: at, Return: at + millisecond})
			for _, domain := range []string{judge.Shut, judge.Open, judge.Own} {
				c := judge.Call{Region: region, From: region, Domain: domain, User: fmt.Sprint(int(at / time.Second)), Call: at, Return: at + 5*millisecond, Code: judge.Passed, Mode: "global", Basis: "exact"}
				fault := at >= e.Before && at < 5*time.Second
				switch {
				case region == "b" && fault:
					c.Mode, c.Basis = "local", map[string]string{judge.Shut: "closed", judge.Open: "open", judge.Own: "local"}[domain]
					if domain == judge.Shut {
						c.Code = judge.Refused
					}
				case region == "c" && fault:
					c.Code, c.Basis = judge.Refused, "shed"
				case domain == judge.Shut && (region == "c" || at%time.Second != 0):
					c.Code = judge.Refused
				}
				calls = append(calls, c)
			}
		}
	}
	return e, calls, records
}

func TestEnvoysBites(t *testing.T) {
	e, calls, records := envoyCalls()
	sum, good := e.Judge(calls, records)
	if want := (judge.Missed{Asked: 540, Passed: 10}); sum != want {
		t.Errorf("%+v, want %+v", sum, want)
	}
	for name, one := range map[string]struct {
		is    func(c *judge.Call) bool // spoilt: the first of these
		spoil func(c *judge.Call)
		says  string
	}{
		"an error":            {func(*judge.Call) bool { return true }, func(c *judge.Call) { c.Code = "Unavailable" }, "the answer is Unavailable"},
		"another region":      {func(*judge.Call) bool { return true }, func(c *judge.Call) { c.From = "z" }, `of "z"`},
		"one too many":        {func(c *judge.Call) bool { return c.Domain == judge.Shut && c.Code == judge.Refused }, func(c *judge.Call) { c.Code = judge.Passed }, "has 3 units of 2"},
		"denied":              {func(c *judge.Call) bool { return c.Domain == judge.Own }, func(c *judge.Call) { c.Code = judge.Refused }, "not OK"},
		"shed and passed":     {func(c *judge.Call) bool { return c.Basis == "shed" }, func(c *judge.Call) { c.Code = judge.Passed }, "not OVER_LIMIT"},
		"local beside Redis":  {func(c *judge.Call) bool { return c.Domain == judge.Own }, func(c *judge.Call) { c.Basis = "local" }, "not decided by Redis"},
		"open where closed":   {func(c *judge.Call) bool { return c.Basis == "closed" }, func(c *judge.Call) { c.Code, c.Basis = judge.Passed, "open" }, "not OVER_LIMIT by basis closed"},
		"exact without Redis": {func(c *judge.Call) bool { return c.Basis == "open" }, func(c *judge.Call) { c.Basis = "exact" }, "not OK by basis open"},
	} {
		e, bad, records := envoyCalls()
		for i := range bad {
			if one.is(&bad[i]) {
				one.spoil(&bad[i])
				break
			}
		}
		_, objects := e.Judge(bad, records)
		t.Run(name, func(t *testing.T) { bites(t, good, objects, one.says) })
	}
}

func TestEnvoysBiteOnTime(t *testing.T) {
	late := func(n int, slow time.Duration, spoil func(c *judge.Call)) []string {
		e, calls, records := envoyCalls()
		for i := range calls {
			if n > 0 && calls[i].Region == "a" && calls[i].Domain == judge.Own {
				spoil(&calls[i])
				n--
			}
		}
		records[3].Return += slow // of a, in the same second
		_, objects := e.Judge(calls, records)
		return objects
	}
	for _, spoil := range []func(c *judge.Call){
		func(c *judge.Call) { c.Code = judge.TooLate },
		func(c *judge.Call) { c.Code, c.Basis = judge.Refused, "shed" },
	} {
		bites(t, late(2, 0, spoil), late(3, 0, spoil), "3 of 30 calls to a were late, 2 may")
		bites(t, late(5, 3*millisecond, spoil), late(6, 3*millisecond, spoil), "6 of 30 calls to a were late, 5 may")
		if o := late(10, 20*millisecond, spoil); len(o) > 0 {
			t.Errorf("where the bare handler takes longer than the deadline it objects %q", o)
		}
	}
}

func TestEnvoysBiteOnNothing(t *testing.T) {
	e, calls, records := envoyCalls()
	for i := range calls {
		if calls[i].Domain == judge.Shut && calls[i].Region == "a" {
			calls[i].Code = judge.Refused
		}
	}
	_, objects := e.Judge(calls, records)
	bites(t, nil, objects, "3 units of shut were admitted before the fault")
}
