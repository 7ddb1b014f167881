package redisstore

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/regiond/regiond/limiter/limitertest"
	"github.com/regiond/regiond/limiter/store"
	"github.com/regiond/regiond/quota"
	"github.com/regiond/regiond/quota/loan"
	"github.com/regiond/regiond/test/redisserver"
)

// hour is a bounded limit of 900 units.
func hour() *limitertest.Question {
	return limitertest.Ask(&quota.Limit{Name: "hour", Units: 900, Window: time.Minute, Scope: quota.ScopeGlobal, MaxOvershoot: quota.Strict})
}

// lendTo is an operation that lends units to a region.
func lendTo(peer string, units int64) store.LoanOp {
	return store.LoanOp{Kind: store.LoanLend, Units: units, Request: loan.Request{From: peer, Epoch: 4_000_000_001, Time: 1}}
}

func bounded(c store.Call, share int64) store.Call {
	c.Bounds = []quota.Bound{{Share: share, Epoch: 4_000_000_000}}
	return c
}

// TestBytesPerLoan measures what a loan takes in Redis, with names as long as they come.
func TestBytesPerLoan(t *testing.T) {
	srv, s := onRedis(t)
	c := bounded(hour().Call("acme", store.OpLoans, 0, nil), 1_000_000)
	key := string(store.AppendLoansKey(nil, &c.Counters[0]))
	for i := range int64(20) {
		c.Loans = []store.LoanOp{lendTo(fmt.Sprintf("ap-southeast-%d", i), 100_000/20)}
		must(limitertest.DecideOne(s, c))(t)
		n := must(srv.Client().MemoryUsage(context.Background(), key).Result())(t)
		t.Logf("%d loans: %d bytes", i+1, n)
		if n > 200*(i+1) {
			t.Errorf("%d loans take %d bytes", i+1, n)
		}
	}
}

// What was lent outlives a reset and the log lives two windows and a minute: a clock that steps forward by less
// empties neither early.
func TestLoansAndTheirLogsLiveLongEnough(t *testing.T) {
	srv, s := onRedis(t)
	ctx := context.Background()
	lends := bounded(hour().Call("acme", store.OpLoans, 0, nil), 900)
	lends.Loans = []store.LoanOp{lendTo("us-east", 400)}
	check := bounded(hour().Call("acme", store.OpCheck, 1, nil), 900)
	v, err := limitertest.Decide(s, lends, check)
	if err != nil || v[0].Loans.Results[0].Grant.Units != 400 || v[1].Limits[0].Bounded != 500 {
		t.Fatalf("%+v, %v", v, err)
	}
	loans := string(store.AppendLoansKey(nil, &check.Counters[0]))
	terms := loan.TermsOf(60_000_000)
	for key, least := range map[string]time.Duration{
		check.Keys[0]: 3 * time.Minute, loans: time.Duration(2*terms.Keep())*time.Microsecond + time.Minute,
	} {
		if got := srv.Client().PTTL(ctx, key).Val(); got < least-10*time.Second || got > least+10*time.Second {
			t.Errorf("%s lives %v, want %v", key, got, least)
		}
	}
	ok(t, s.ResetAll(ctx, "acme", 0))
	if n := srv.Client().Exists(ctx, check.Keys[0]).Val(); n != 0 {
		t.Error("a reset leaves the log")
	}
	if v, err := limitertest.DecideOne(s, check); err != nil || v.Limits[0].Bounded != 500 {
		t.Errorf("after a reset: %+v, %v", v, err)
	}
}

// TestDamagedLoans leaves what nobody can have written in the place of loans: the partition alone is refused.
func TestDamagedLoans(t *testing.T) {
	srv := redisserver.Start(t, redisserver.Options{})
	s, ctx, c := newRedis(t, srv.Addr(), ""), context.Background(), srv.Client()
	bad, good := bounded(hour().Call("bad", store.OpCheck, 1, nil), 900), bounded(hour().Call("good", store.OpCheck, 1, nil), 900)
	key := string(store.AppendLoansKey(nil, &bad.Counters[0]))
	for _, fields := range [][]string{
		nil,
		{"c", ""},
		{"c", "4000000000 9000000000000000 x"},
		{"c", "4000000000 9000000000000000 "},
		{"c", "4000000000 0000000000000000 0 0"},
		{"c", "4000000000 0000000000000000 0000000000000000", "r", "1"},
		{"c", "4000000000 0000000000000000 0000000000000000", "lus-east 1 2", "1 2"},
		{"c", "4000000000 0000000000000000 0000000000000000", "zus-east 1 2", "1 2 9000000000000000"},
	} {
		if flush(t, c); fields == nil {
			c.RPush(ctx, key, "a list")
		} else {
			c.HSet(ctx, key, fields)
		}
		v, _ := limitertest.Decide(s, good, bad, good)
		if v[0].Outcome != store.Admitted || v[2].Outcome != store.Admitted || !errors.Is(v[1].Err, store.ErrPartition) {
			t.Errorf("%q: %+v", fields, v)
		}
		if n := c.Exists(ctx, bad.Keys[0]).Val(); n != 0 {
			t.Errorf("%q: refused and charged", fields)
		}
	}
}

// The epoch is compared with that of the region's hash where the data are: from the moment
// at which Redis has lost them, and in a new epoch, nothing is admitted or lent for the old one.
func TestBoundsOfAnotherEpoch(t *testing.T) {
	srv := redisserver.Start(t, redisserver.Options{})
	s, _ := nodeSetStore(t, Options{Addrs: []string{srv.Addr()}, Epoch: "rl:region"})
	limitertest.Eventually(t, 10*time.Second, "redis is there", s.Probed)
	ctx, client := context.Background(), srv.Client()
	for _, row := range []struct {
		what  string
		epoch string // "" for none
		admit bool
	}{
		{"its own", "4000000000 0", true},
		{"after a loss", "4000000000 1795198405000000", true},
		{"another", "4000000001 0", false},
		{"a shorter one", "400000000 0", false},
		{"none: redis was flushed", "", false},
		{"garbage", "x", false},
	} {
		client.FlushAll(ctx)
		if row.epoch != "" {
			client.HSet(ctx, "rl:region", "epoch", row.epoch)
		}
		check := bounded(hour().Call("acme", store.OpCheck, 1, nil), 900)
		lends := bounded(hour().Call("acme", store.OpLoans, 0, nil), 900)
		lends.Loans = []store.LoanOp{lendTo("us-east", 400)}
		v, _ := limitertest.Decide(s, check, check)
		if admitted := v[0].Outcome == store.Admitted; admitted != row.admit || v[1].Outcome != v[0].Outcome {
			t.Errorf("%s: %+v", row.what, v)
		}
		lent := int64(0)
		if v, err := limitertest.DecideOne(s, lends); err == nil {
			lent = v.Loans.Results[0].Grant.Units
		}
		if (lent == 400) != row.admit {
			t.Errorf("%s: %d are lent", row.what, lent)
		}
	}
}

// TestManyLoans lends and takes thousands of loans, as peers with the key may have it: the book stays small and whole.
func TestManyLoans(t *testing.T) {
	_, s := onRedis(t)
	c := bounded(hour().Call("acme", store.OpLoans, 0, nil), 900)
	v := must(limitertest.DecideOne(s, c))(t)
	asked := v.StoreUS
	for n := range int64(20) {
		c.Loans = nil
		for i := range int64(50) {
			g := loan.Grant{From: "us-east", ID: loan.ID{Epoch: 9, Stamp: 50*n + i + 1}, Units: 1, New: true, Epoch: 4_000_000_000, Time: asked}
			c.Loans = append(c.Loans, lendTo("us-east", 1), store.LoanOp{Kind: store.LoanAccept, Grant: g})
		}
		v = must(limitertest.DecideOne(s, c))(t)
	}
	st := v.Loans.State
	if len(st.Lent) != loan.MaxLoans || len(st.Held) != loan.MaxLoans {
		t.Errorf("%d lent, %d held", len(st.Lent), len(st.Held))
	}
}
