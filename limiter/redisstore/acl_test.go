package redisstore

import (
	"context"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/regiond/regiond/limiter/limitertest"
	"github.com/regiond/regiond/limiter/store"
	"github.com/regiond/regiond/quota"
	"github.com/regiond/regiond/region"
	"github.com/regiond/regiond/region/members"
	"github.com/regiond/regiond/region/overrides"
	"github.com/regiond/regiond/region/state"
	"github.com/regiond/regiond/test/redisserver"
)

// documentedUser is regiond's line of deploy/redis.acl, which operators copy.
func documentedUser(t *testing.T) []string {
	t.Helper()
	text := must(os.ReadFile("../../deploy/redis.acl"))(t)
	for line := range strings.Lines(string(text)) {
		if rules, ok := strings.CutPrefix(line, "user regiond "); ok {
			return append([]string{"regiond"}, strings.Fields(rules)...)
		}
	}
	t.Fatalf("deploy/redis.acl has no user regiond: %q", text)
	return nil
}

// admit creates the user on a server. rules are those documented, or some of them.
func admit(t *testing.T, srv *redisserver.Server, rules []string) {
	t.Helper()
	args := []any{"ACL", "SETUSER"}
	for _, rule := range rules {
		args = append(args, rule)
	}
	ok(t, srv.Client().Do(context.Background(), args...).Err())
}

func asUser(o Options) Options {
	o.Credentials = func() (string, string) { return "regiond", "CHANGE" }
	return o
}

// everything does all that a store ever does.
func everything(t *testing.T, s *Store) {
	t.Helper()
	ctx := context.Background()
	plan := store.NewKeyPlan([]*quota.Limit{
		{Name: "log", Units: 5, Window: time.Hour},
		{Name: "window", Units: 50, Window: time.Hour, Algorithm: quota.SlidingWindow},
		{Name: "level", Units: 50, Window: time.Hour, Algorithm: quota.GCRA},
		{Name: "global", Units: 50, Window: time.Hour, Scope: quota.ScopeGlobal},
	})
	call := limitertest.CallOf(plan, "acme", 1)
	call.Counters = plan.AppendCounters(nil, call.Keys, "acme", "standard")
	untilDecided(t, s, call) // connections by way of a sentinel take longer
	for i := range 12 {      // the log is cut from the fifth on
		call.Op, call.Cost, call.Record, call.Print = store.OpReport, int64(1+i%2), "", ""
		if i == 3 {
			call.Op, call.Record, call.Print = store.OpCheck, "rl:{acme}:i:k", "p"
		}
		if _, err := limitertest.DecideOne(s, call); err != nil {
			t.Fatalf("call %d: %v", i, err)
		}
	}
	check, loans := bounded(hour().Call("acme", store.OpCheck, 1, nil), 10), bounded(hour().Call("acme", store.OpLoans, 0, nil), 10)
	loans.Loans = []store.LoanOp{lendTo("us-east", 4)}
	if v, err := limitertest.Decide(s, check, loans, check); err != nil || v[2].Limits[0].Bounded != 6 {
		t.Errorf("bounded: %+v, %v", v, err)
	}
	reserve := limitertest.CallOf(store.NewKeyPlan([]*quota.Limit{{Name: "tokens", Units: 9, Window: time.Hour, Counts: quota.CountsTokens}}), "acme", 2)
	reserve.Op, reserve.Hold = store.OpReserve, store.Hold{ID: 1, TTLUS: 60_000_000, KeepUS: 60_000_000}
	extend, settle, other := reserve, reserve, reserve
	extend.Op, settle.Op, other.Hold.ID = store.OpExtend, store.OpSettle, 2
	if v, err := limitertest.Decide(s, reserve, other, extend, settle); err != nil || v[3].Outcome != store.Settled || v[3].Limits[0].Held != 2 {
		t.Errorf("reservations: %+v, %v", v, err)
	}
	lost := call
	lost.Op, lost.Record, lost.Print = store.OpCheck, "", ""
	lost.Known = []quota.Counter{{Generation: 1 << 52, Bucket: 1, Units: 1}}
	if v, err := limitertest.DecideOne(s, lost); err != nil || v.Outcome != store.Lost {
		t.Errorf("lost: %+v, %v", v, err)
	}
	found := 0
	if err := s.Counters(ctx, func(quota.CounterKey, []quota.Counter, quota.Gauge, int64) { found++ }); err != nil || found != 2 {
		t.Errorf("%d counters read back (%v), want 2", found, err)
	}
	if err := s.ResetAll(ctx, "acme", 1<<52); err != nil {
		t.Error(err)
	}
	for _, instance := range []string{"one", "two"} {
		st, table := stateOn(s, instance)
		err := st.Adopt(ctx, &region.Topology{Revision: 3, Regions: []region.Region{{Name: "a", Weight: 1}}})
		if got := st.Snapshot(); err != nil || got.Topology.Revision != 3 || instance == "two" && len(table.Siblings()) != 1 {
			t.Errorf("%s reads %+v (%v)", instance, got, err)
		}
	}
	keepOverrides(t, s)
}

// keepOverrides has one process set overrides, which another reads.
func keepOverrides(t *testing.T, s *Store) {
	t.Helper()
	o := overrides.Options{
		Region: "a", Eval: s.Eval, TimeUS: func() int64 { return 1 }, Now: time.Now, Logger: slog.New(slog.DiscardHandler),
		Topology: func() *region.Topology { return &region.Topology{Policies: []quota.Policy{{Name: "p"}}} },
	}
	open := func() *overrides.Overlay {
		t.Helper()
		v := must(overrides.New(o))(t)
		return v
	}
	tenants := []string{"a", "b", "c", "d"}
	for _, tenant := range tenants {
		if _, err := open().Edit(context.Background(), quota.Edit{Override: quota.Override{Tenant: tenant, Policy: "p"}}); err != nil {
			t.Errorf("override of %s: %v", tenant, err)
		}
	}
	reader := open()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- reader.Run(ctx) }()
	for ctx.Err() == nil {
		if all, _, err := reader.List("", 9); err == nil && len(all) == len(tenants) {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	if all, _, err := reader.List("", 9); err != nil || len(all) != len(tenants) {
		t.Errorf("%d overrides read back, %v", len(all), err)
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// stateOn is what a process keeps of its region in a store, joined as internal/daemon joins them.
func stateOn(s *Store, instance string) (*state.State, *members.Table) {
	table, began := members.New(quota.Process{Region: "a", Instance: instance, Boot: 1}), time.Now()
	return state.New(state.Options{
		Members: table, Eval: s.Eval, Primaries: s.Primaries, OnLoss: s.CountLoss,
		Now: func() time.Duration { return time.Since(began) }, Logger: slog.New(slog.DiscardHandler),
	}), table
}

// The documented user may do all that regiond does; see TestCluster for a cluster.
func TestDocumentedUser(t *testing.T) {
	t.Parallel() // it mostly waits for failovers
	rules := documentedUser(t)
	t.Run("standalone", func(t *testing.T) {
		srv := redisserver.Start(t, redisserver.Options{})
		admit(t, srv, rules)
		s, _ := nodeSetStore(t, asUser(Options{Addrs: []string{srv.Addr()}, ClientName: "regiond/eu-west/a"}))
		everything(t, s)
		noRefusals(t, srv)
	})
	t.Run("sentinel", func(t *testing.T) {
		w, o := watched(t)
		for _, srv := range w.Servers {
			admit(t, srv, rules)
		}
		s, _ := nodeSetStore(t, asUser(o))
		everything(t, s)
		noRefusals(t, w.Servers[0])
	})
}

// clusterDocumentedUser is the same on a cluster, a slot of which moves meanwhile.
func clusterDocumentedUser(t *testing.T, c *redisserver.Cluster, o Options) {
	rules := documentedUser(t)
	for _, srv := range c.Servers {
		admit(t, srv, rules)
	}
	s, _ := nodeSetStore(t, asUser(o))
	everything(t, s)
	slot := c.Slot("rl:{acme}:")
	from, to := c.Primary(slot), c.Primary((slot+16384/3)%16384)
	before := to.Calls(t, "asking")
	c.Begin(slot, from, to) // from here on a new key of the slot is asked for at its new home
	if _, err := limitertest.DecideOne(s, limitertest.OneCall("acme", 5, 1)); err != nil {
		t.Error(err)
	}
	if n := to.Calls(t, "asking") - before; n != 1 {
		t.Errorf("the new home was asked %d times, want once", n)
	}
	for _, srv := range c.Servers {
		noRefusals(t, srv)
	}
}

// noRefusals holds that a server has refused its users nothing.
func noRefusals(t *testing.T, srv *redisserver.Server) {
	t.Helper()
	log := must(srv.Client().Do(context.Background(), "ACL", "LOG").Slice())(t)
	for _, entry := range log {
		t.Errorf("refused: %v", entry)
	}
}

// probed are the commands for which probe.lua looks at the user's rights.
func probed() []string {
	var all []string
	for _, m := range regexp.MustCompile(`\{ '([A-Z]+)'`).FindAllStringSubmatch(luaOf("probe"), -1) {
		all = append(all, m[1])
	}
	slices.Sort(all)
	return all
}

// TestAllCommandsAreProbed: what scripts call is what probe.lua looks for, no more and no less.
func TestAllCommandsAreProbed(t *testing.T) {
	files, err := filepath.Glob("lua/*.lua")
	if err != nil || len(files) < 10 {
		t.Fatalf("found %d scripts (%v)", len(files), err)
	}
	scripts := map[string]string{"deleteCounters": deleteCounters}
	for _, file := range append(files, "../../region/state/region.lua", "../../region/overrides/keeper.go") {
		text := must(os.ReadFile(file))(t)
		scripts[file] = string(text)
	}
	comment, calls := regexp.MustCompile(`--.*`), regexp.MustCompile(`\b(?:redis\.p?call|call)\b(?:[(,] ?'([A-Z]+)'|.?)`)
	others := []string{ // places that name no command
		"lua/base.lua local call, error", "lua/base.lua = redis.call, error", "lua/probe.lua redis.pcall(unpack(c))",
	}
	found := map[string]bool{}
	for file, text := range scripts {
		text = comment.ReplaceAllString(text, "")
		for _, m := range calls.FindAllStringSubmatchIndex(text, -1) {
			switch around := file + " " + text[max(0, m[0]-6):min(len(text), m[1]+10)]; {
			case m[2] >= 0:
				found[text[m[2]:m[3]]] = true
			case !slices.ContainsFunc(others, func(o string) bool {
				name, place, _ := strings.Cut(o, " ")
				return name == file && strings.Contains(around, place)
			}):
				t.Errorf("%s: a call without a literal command, which this test cannot see: %q", file, around)
			}
		}
	}
	if got, want := probed(), slices.Sorted(maps.Keys(found)); !slices.Equal(got, want) {
		t.Errorf("probe.lua looks for %q, scripts call %q", got, want)
	}
}

// storeOfUser is a store of the documented user, and what it logs.
func storeOfUser(t *testing.T, addr string) (*Store, *strings.Builder) {
	t.Helper()
	log := &strings.Builder{}
	o := asUser(Options{Addrs: []string{addr}, Budget: 10 * time.Second, DeadAfter: 10 * time.Second})
	o.Logger = slog.New(slog.NewTextHandler(log, nil))
	return newStore(t, o), log
}

// TestMissingRight: a user that lacks a command of the scripts is noticed before any check is charged, and named. With the
// right it decides again.
func TestMissingRight(t *testing.T) {
	srv := redisserver.Start(t, redisserver.Options{})
	rules := documentedUser(t)
	s, log := storeOfUser(t, srv.Addr())
	probe := func(what string, available bool) {
		t.Helper()
		if s.probe(t.Context()); s.Available() != available {
			t.Fatalf("%s: available %v:\n%s", what, s.Available(), log)
		}
	}
	admit(t, srv, rules)
	probe("at the start", true)
	n := s.nodeSet.current()[0]
	for _, name := range probed() {
		if name == "TIME" {
			continue // regiond has read the region's clock before
		}
		right := "-" + strings.ToLower(name)
		admit(t, srv, append(slices.Clone(rules), right))
		log.Reset()
		if name != "SET" { // which each probe needs
			probe(right+", within a minute", true)
		}
		n.checked = n.checked.Add(-checkEvery)
		probe(right, false)
		if want := "+" + strings.ToLower(name) + " on keys rl:*; see deploy/redis.acl"; !strings.Contains(log.String(), "NOPERM the user needs "+want) {
			t.Errorf("%s: the log does not name %q:\n%s", right, want, log)
		}
		probe(right+", a moment later", false)
		if _, err := limitertest.DecideOne(s, hour().Call("acme", store.OpCheck, 1, nil)); err == nil {
			t.Errorf("%s: decided", right)
		}
		admit(t, srv, rules)
		n.breaker.hold = 0 // it has failed again and again
		probe("with all rights", true)
	}
	if keys, err := srv.Client().Keys(t.Context(), "*").Result(); err != nil || len(keys) > 0 && !slices.Equal(keys, []string{"rl:{}:rights"}) {
		t.Errorf("Redis holds %q (%v), want nothing: no check was charged", keys, err)
	}
}
