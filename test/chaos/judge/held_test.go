package judge_test

import (
	"testing"
	"time"

	"github.com/regiond/regiond/test/chaos/judge"
)

func TestHeldBites(t *testing.T) {
	limit := judge.Limit{Units: 100, Window: 10 * time.Second}
	at := func(from, to int) judge.Span {
		return judge.Span{From: time.Duration(from) * time.Second, To: time.Duration(to) * time.Second}
	}
	held := func(amount int64, asked judge.Span, s *judge.Settle) judge.Reservation {
		return judge.Reservation{Region: "eu", Tenant: "a", Amount: amount, TTL: 5 * time.Second, Reserved: asked, Settled: s}
	}
	settled := func(charged, overrun int64, released bool) *judge.Settle {
		return &judge.Settle{Region: "eu", Span: at(3, 4), Charged: charged, Overrun: overrun, Released: released}
	}
	for name, row := range map[string]struct {
		all []judge.Reservation
		bad bool
	}{
		"held by two":            {[]judge.Reservation{held(60, at(0, 1), nil), held(41, at(2, 3), nil)}, true},
		"the first may be over":  {[]judge.Reservation{held(60, at(0, 1), nil), held(41, at(4, 5), nil)}, false},
		"settled, and held":      {[]judge.Reservation{held(60, at(0, 1), settled(60, 0, true)), held(41, at(11, 12), nil)}, true},
		"it has left the window": {[]judge.Reservation{held(60, at(0, 1), settled(60, 0, true)), held(41, at(12, 13), nil)}, false},
		"overrun is told":        {[]judge.Reservation{held(60, at(0, 1), settled(90, 30, true)), held(40, at(11, 12), nil)}, false},
		"it was not held":        {[]judge.Reservation{held(60, at(0, 1), settled(60, 0, false)), held(100, at(11, 12), nil)}, false},
		"of another region": {[]judge.Reservation{
			held(60, at(0, 1), &judge.Settle{Region: "us", Span: at(3, 4), Charged: 60}), held(41, at(6, 7), nil),
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			most, objects := judge.Held(row.all, limit)
			if row.bad {
				bites(t, nil, objects, "the limit is 100")
			} else if len(objects) > 0 || most == 0 {
				t.Errorf("%v, at most %d", objects, most)
			}
		})
	}
}
