package redisstore

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"go.opentelemetry.io/otel/metric/noop"

	"github.com/regiond/regiond/clock"
	"github.com/regiond/regiond/limiter/limitertest"
	"github.com/regiond/regiond/limiter/store"
	"github.com/regiond/regiond/quota"
	"github.com/regiond/regiond/test/redisserver"
)

// nodeTimeout is after how long nodes of a test's cluster call another dead.
const nodeTimeout = time.Second

// TestCluster starts one cluster, which takes some seconds, for all that a cluster
// goes through.
func TestCluster(t *testing.T) {
	t.Parallel() // it mostly waits for failovers
	c := redisserver.StartCluster(t, nodeTimeout, "--cluster-replica-validity-factor", "0")
	options := Options{Mode: quota.RedisCluster, Addrs: c.Addrs()[:2]}
	t.Run("exact", func(t *testing.T) { clusterExact(t, options) })
	t.Run("counters and reset", func(t *testing.T) { clusterCounters(t, options) })
	t.Run("a record of the shared partition", func(t *testing.T) { clusterSharedRecord(t, options) })
	t.Run("a reset shows everywhere", func(t *testing.T) { resetsShow(t, options) })
	t.Run("slots move", func(t *testing.T) { clusterMoves(t, c, options) })
	t.Run("a slot is half moved", func(t *testing.T) { clusterHalfMoved(t, c, options) })
	t.Run("a record of a slot that is half moved", func(t *testing.T) { clusterRemembers(t, c, options) })
	t.Run("the slot of its own key is half moved", func(t *testing.T) { clusterOwnKeyHalfMoved(t, c, options) })
	t.Run("a primary refuses a command", func(t *testing.T) { clusterMissingRight(t, c, options) })
	t.Run("a primary dies", func(t *testing.T) {
		clusterFailover(t, c, options, (*redisserver.Server).Kill, (*redisserver.Server).Restart)
	})
	t.Run("writes are lost", func(t *testing.T) { clusterLoses(t, c, options) })
	t.Run("an old primary thaws", func(t *testing.T) {
		clusterFailover(t, c, options, (*redisserver.Server).Freeze, (*redisserver.Server).Thaw)
	})
	t.Run("documented user", func(t *testing.T) { clusterDocumentedUser(t, c, options) }) // leaves a slot half moved
}

// emptied empties the cluster for the next part.
func emptied(t *testing.T, c *redisserver.Cluster) {
	t.Helper()
	for _, srv := range c.Servers {
		srv.Client().FlushAll(context.Background()) // replicas refuse
	}
}

// However many ask at the same time, by two processes and in batches across
// slots, each tenant gets its limit and no unit more.
func clusterExact(t *testing.T, o Options) {
	const units, tenants = 20, 30
	a, _ := nodeSetStore(t, o)
	b, _ := nodeSetStore(t, o)
	plan := store.NewKeyPlan([]*quota.Limit{{Name: "hour", Units: units, Window: time.Hour}})
	var allowed [tenants]atomic.Int64
	var wg sync.WaitGroup
	for w := range 16 {
		s := []*Store{a, b}[w%2]
		wg.Go(func() {
			for n := range tenants {
				calls, verdicts := make([]store.Call, 5), make([]store.Verdict, 5)
				for i := range calls {
					calls[i] = limitertest.CallOf(plan, fmt.Sprint("exact", (n+i*w)%tenants), 1)
				}
				s.Decide(context.Background(), calls, verdicts)
				for i := range verdicts {
					if verdicts[i].Err != nil {
						t.Error(verdicts[i].Err)
					} else if verdicts[i].Outcome == store.Admitted {
						allowed[(n+i*w)%tenants].Add(1)
					}
				}
			}
		})
	}
	wg.Wait()
	for i := range allowed {
		if n := allowed[i].Load(); n != units {
			t.Errorf("tenant %d was allowed %d times, want %d", i, n, units)
		}
	}
}

// Usage counters are read back from every primary, and a reset finds its tenant.
func clusterCounters(t *testing.T, o Options) {
	const tenants = 20
	s, _ := nodeSetStore(t, o)
	plan := store.NewKeyPlan([]*quota.Limit{{Name: "hour", Units: 100, Window: time.Hour, Scope: quota.ScopeGlobal}})
	call := func(tenant string, cost int64) store.Call {
		c := limitertest.CallOf(plan, tenant, cost)
		c.Counters = plan.AppendCounters(nil, c.Keys, tenant, "standard")
		return c
	}
	for i := range tenants {
		must(limitertest.DecideOne(s, call(fmt.Sprint("total", i), int64(i+1))))(t)
	}
	var units int64
	err := s.Counters(context.Background(), func(_ quota.CounterKey, buckets []quota.Counter, _ quota.Gauge, _ int64) {
		for _, b := range buckets {
			units += b.Units
		}
	})
	if err != nil || units != tenants*(tenants+1)/2 {
		t.Errorf("read %d units back (%v), want %d", units, err, tenants*(tenants+1)/2)
	}
	ok(t, s.ResetAll(context.Background(), "total7", 0))
	v := must(limitertest.Decide(s, call("total7", 1), call("total8", 1)))(t)
	if v[0].Limits[0].Remaining != 99 || v[1].Limits[0].Remaining != 90 {
		t.Errorf("remaining %d and %d, want 99 after the reset and 90 beside it", v[0].Limits[0].Remaining, v[1].Limits[0].Remaining)
	}
	ok(t, s.ResetAll(context.Background(), "total7", v[0].Limits[0].Counter.Generation))
	if v, err = limitertest.Decide(s, call("total7", 2), call("total8", 1)); err != nil {
		t.Fatal(err, v)
	}
	if got := [...]int64{v[0].Limits[0].Counter.Units, v[1].Limits[0].Counter.Units}; got != [...]int64{2, 11} {
		t.Errorf("counters of %d units, want 2 after the reset of all and 11 beside it", got)
	}
}

// A slot that moves under load takes its log along: nothing is charged twice or
// forgotten, and its tenant is decided exactly again when it has arrived.
func clusterMoves(t *testing.T, c *redisserver.Cluster, o Options) {
	s, _ := nodeSetStore(t, o)
	st := startTraffic(t, s)
	st.flowing(t, everybody)
	for i := range 3 {
		slot := c.Slot(trafficKey(i))
		from := c.Owner(slot)
		to := c.Owner((slot + 16384/3) % 16384)
		c.Begin(slot, from, to)
		for c.MoveKeys(slot, 1, from, to) > 0 { // until none is left there
			continue
		}
		c.End(slot, to)
		took := st.flowing(t, func(j int) bool { return j == i })
		t.Logf("exact again %v after the slot had moved", took)
	}
	st.judge(t, func(key string) *redis.Client { return c.Owner(c.Slot(key)).Client() }, nothing)
	for i, k := range st.now() {
		if k.failed > 0 && i > 2 {
			t.Errorf("%s: %d calls failed, and its slot stayed where it was", trafficTenant(i), k.failed)
		}
	}
	emptied(t, c)
}

// A call that needs several keys of a slot that is half moved cannot be decided, by
// Redis's own rule. It ends within its budget, is known not to be charged, and costs
// nobody else the server.
func clusterHalfMoved(t *testing.T, c *redisserver.Cluster, o Options) {
	s, count := nodeSetStore(t, o)
	plan := store.NewKeyPlan([]*quota.Limit{
		{Name: "log", Units: 5, Window: time.Hour},
		{Name: "window", Units: 50, Window: time.Hour, Algorithm: quota.SlidingWindow},
	})
	slot := c.Slot("rl:{half}:")
	from, to := c.Primary(slot), c.Primary((slot+16384/3)%16384)
	c.Begin(slot, from, to)
	start := time.Now()
	_, err := limitertest.DecideOne(s, limitertest.CallOf(plan, "half", 1))
	if took := time.Since(start); took > trafficBudget {
		t.Errorf("took %v, the budget is %v", took, trafficBudget)
	}
	if e := (*store.Error)(nil); !errors.As(err, &e) || e.Ambiguous || e.Reason != quota.ReasonRedisTimeout || !strings.Contains(e.Error(), "TRYAGAIN") {
		t.Errorf("got %+v, want TRYAGAIN until there was no time left, and nothing charged", e)
	}
	if !s.Available() || count("regiond.redis.ambiguous") != 0 {
		t.Error("a slot on its way was taken for a server that is away")
	}
	c.End(slot, to)
	if v, err := limitertest.DecideOne(s, limitertest.CallOf(plan, "half", 1)); err != nil || v.Limits[0].Remaining != 4 {
		t.Errorf("after the move: %v %+v, want 4 remaining", err, v)
	}
	emptied(t, c)
}

// A record that cannot be written while its slot moves keeps back no other.
func clusterRemembers(t *testing.T, c *redisserver.Cluster, o Options) {
	s, _ := nodeSetStore(t, o)
	plan := store.NewKeyPlan([]*quota.Limit{{Name: "hour", Units: 100, Window: time.Hour}})
	var all []*store.Admission
	for i := range 20 { // of all primaries
		record := store.RecordKey(fmt.Sprint("remember", i), "k")
		all = append(all, &store.Admission{
			Record: record, Key: record, Print: "p", Plan: plan, Ceilings: plan.Capacities, Limits: make([]store.LimitVerdict, 1),
		})
	}
	slot := c.Slot(all[0].Record)
	from, to := c.Primary(slot), c.Primary((slot+16384/3)%16384)
	remember := func() (missing []int) {
		settled := make([]bool, len(all))
		s.Remember(context.Background(), all, func(*store.Admission) int64 { return 0 }, func(i int, _ bool) { settled[i] = true })
		for i := range all {
			if !settled[i] {
				missing = append(missing, i)
			}
		}
		return missing
	}
	c.Begin(slot, from, to)
	if missing := remember(); !slices.Equal(missing, []int{0}) {
		t.Errorf("while the slot of the first moves, %v are not written", missing)
	}
	c.End(slot, to)
	limitertest.Eventually(t, 10*time.Second, "the first is written too", func() bool { return len(remember()) == 0 })
	emptied(t, c)
}

// probedStore is a store that probes when the test says so.
func probedStore(t *testing.T, o Options, log io.Writer) *Store {
	t.Helper()
	o.Logger, o.Budget, o.DeadAfter = slog.New(slog.NewTextHandler(log, nil)), 5*time.Second, 5*time.Second
	var err error
	if o.Clock, err = clock.New(clock.Options{}); err != nil {
		t.Fatal(err)
	}
	s := newStore(t, o)
	if s.probe(t.Context()); !s.Available() || len(s.Primaries()) != 2 {
		t.Fatalf("not available at the start, with hashes %v", s.Primaries())
	}
	return s
}

// A key of its own whose slot is on its way cannot be written, which says nothing of the server that it leaves.
func clusterOwnKeyHalfMoved(t *testing.T, c *redisserver.Cluster, o Options) {
	s := probedStore(t, o, io.Discard)
	slot := c.Slot("{" + s.nodeSet.current()[0].place.Load().tag + "}")
	from, to := c.Primary(slot), c.Primary((slot+16384/3)%16384)
	c.Begin(slot, from, to)
	for _, n := range s.nodeSet.current() {
		n.checked = time.Time{} // with two keys, one of which is not there
	}
	if s.probe(t.Context()); !s.Available() {
		t.Error("a server is taken for one that is away, since one slot is half moved")
	}
	for c.MoveKeys(slot, 1, from, to) > 0 {
		continue
	}
	if s.probe(t.Context()); !s.Available() {
		t.Error("a server is taken for one that is away, since its key has moved")
	}
	c.End(slot, to)
	emptied(t, c)
}

// Rights belong to a server: one that refuses a command is named, and costs the tenants of the others nothing.
func clusterMissingRight(t *testing.T, c *redisserver.Cluster, o Options) {
	rules := documentedUser(t)
	for _, srv := range c.Servers {
		admit(t, srv, rules)
	}
	var log strings.Builder
	s := probedStore(t, asUser(o), &log)
	refuses := c.Primary(c.Slot("rl:{a}:"))
	admit(t, refuses, append(slices.Clone(rules), "-rpush", "-hset"))
	for _, n := range s.nodeSet.current() {
		n.checked = time.Time{}
	}
	if s.probe(t.Context()); !strings.Contains(log.String(), "NOPERM the user needs +rpush +hset on keys") {
		t.Errorf("the log does not name what is missing:\n%s", &log)
	}
	for _, tenant := range []string{"a", "b", "c", "d", "e", "f"} {
		own := c.Primary(c.Slot("rl:{"+tenant+"}:")) == refuses
		if _, err := limitertest.DecideOne(s, limitertest.OneCall(tenant, 5, 1)); (err != nil) != own {
			t.Errorf("tenant %s, on the server that refuses: %v, got %v", tenant, own, err)
		}
	}
	for _, srv := range c.Servers {
		srv.Client().Do(context.Background(), "ACL", "DELUSER", "regiond")
		srv.Client().Do(context.Background(), "ACL", "LOG", "RESET")
	}
	emptied(t, c)
}

// One primary stops: the tenants of the others notice nothing, its own are decided exactly again
// soon after its replica took over, and all are answered meanwhile. When it comes back, what it was
// sent is not charged there and here.
func clusterFailover(t *testing.T, c *redisserver.Cluster, o Options, stop, back func(*redisserver.Server)) {
	s, _ := nodeSetStore(t, o)
	st := startTraffic(t, s)
	st.flowing(t, everybody)
	slot := c.Slot(trafficKey(0))
	old := c.Primary(slot)
	on, before := tenantsOn(c, old), st.now()
	stop(old)
	now := c.AwaitPrimary(slot, old)
	if took := st.flowing(t, everybody); took > 2*time.Second {
		t.Errorf("exact again only %v after the replica had taken over", took)
	}
	for i, k := range st.now() {
		if !on[i] && k.failed != before[i].failed {
			t.Errorf("%s: %d calls failed, and its primary was well", trafficTenant(i), k.failed-before[i].failed)
		}
	}
	back(old)
	awaitReplica(t, old)
	st.flowing(t, everybody)
	st.judge(t, func(key string) *redis.Client { return c.Owner(c.Slot(key)).Client() }, unsent(on))
	if c.Primary(slot) != now {
		t.Errorf("%s is primary again, want %s", old.Addr(), now.Addr())
	}
	emptied(t, c)
}

// A replica that was behind takes over: exactly what Redis had lost is admitted
// again, and the loss is counted.
func clusterLoses(t *testing.T, c *redisserver.Cluster, o Options) {
	s, count := nodeSetStore(t, o)
	slot := c.Slot("rl:{lossy}:")
	old := c.Primary(slot)
	heir := c.Replica(old)
	losses(t, s, count, lossy{old: old, heir: heir, takeOver: func() *redisserver.Server { return c.AwaitPrimary(slot, old) }})
	old.Restart()
	awaitReplica(t, old)
	emptied(t, c)
}

// unsent is what a primary may have confirmed and not yet sent to its replica when
// it stopped. It does both in one turn, so this is at most one call of each worker.
func unsent(on [trafficTenants]bool) func(i int) int64 {
	return func(i int) int64 {
		if on[i] {
			return trafficWorkers
		}
		return 0
	}
}

// tenantsOn is who lives on a primary.
func tenantsOn(c *redisserver.Cluster, srv *redisserver.Server) (on [trafficTenants]bool) {
	for i := range on {
		on[i] = c.Primary(c.Slot(trafficKey(i))) == srv
	}
	return on
}

// forgetful is a server, behind a client's hook, that answers each tenant's script call as
// the test says, the first time; later ones and all others are admitted.
type forgetful struct {
	first map[string]error // by tenant
	load  error            // of SCRIPT LOAD
	sent  []string         // tenants, in the order that their calls came
}

func (f *forgetful) DialHook(redis.DialHook) redis.DialHook {
	return func(context.Context, string, string) (net.Conn, error) {
		return nil, errors.New("there is no network here")
	}
}

func (f *forgetful) ProcessHook(redis.ProcessHook) redis.ProcessHook {
	return func(_ context.Context, cmd redis.Cmder) error {
		if cmd.Name() == "script" {
			return f.load
		}
		f.answer(cmd)
		return cmd.Err()
	}
}

func (f *forgetful) ProcessPipelineHook(redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(_ context.Context, cmds []redis.Cmder) error {
		for _, cmd := range cmds {
			f.answer(cmd)
		}
		return nil
	}
}

func (f *forgetful) answer(cmd redis.Cmder) {
	args := cmd.Args()
	if len(args) == 1 { // TIME
		return
	}
	tenant := hashTag(args[3].(string))
	again := slices.Contains(f.sent, tenant)
	f.sent = append(f.sent, tenant)
	if err := f.first[tenant]; err != nil && !again {
		cmd.SetErr(err)
		return
	}
	cmd.(onceCmd).SetVal([]any{fmt.Sprintf("%v 1795198405260197", args[3+args[2].(int)]), "a", int64(9), int64(0), int64(60_000_000)})
}

// When a server has forgotten the script, those calls are sent again that it refused for
// that, and no others: of one whose reply was lost nobody knows that it was not charged.
func TestClusterSendsAgainWhatWasNotExecuted(t *testing.T) {
	const known, unknown, lost = "known", "unknown", "lost"
	noscript := redisReply("NOSCRIPT No matching script")
	busy := redisReply("BUSY Redis is busy running a script")
	for _, row := range []struct {
		what  string
		first map[string]error
		load  error
		sent  []string
		want  map[string]error // by tenant; nil for admitted
	}{
		{"all know it", nil, nil, []string{known, unknown, lost}, nil},
		{
			"one does not",
			map[string]error{unknown: noscript},
			nil,
			[]string{known, unknown, lost, unknown},
			nil,
		},
		{
			"one does not, and one reply is lost",
			map[string]error{unknown: noscript, lost: io.EOF},
			nil,
			[]string{known, unknown, lost, unknown},
			map[string]error{lost: io.EOF},
		},
		{
			"one does not, and will not",
			map[string]error{unknown: noscript, lost: io.EOF},
			busy,
			[]string{known, unknown, lost},
			map[string]error{unknown: busy, lost: io.EOF},
		},
	} {
		t.Run(row.what, func(t *testing.T) {
			server := &forgetful{first: row.first, load: row.load}
			o := Options{Mode: quota.RedisCluster, Addrs: []string{"127.0.0.1:1"}, Budget: time.Second, Logger: slog.New(slog.DiscardHandler)}
			m := must(newMetrics(noop.Meter{}, func() bool { return true }))(t)
			c := newCluster(o, newNodes(o, make(chan struct{}, 1), m))
			defer c.close()
			client := redis.NewClient(&redis.Options{Addr: o.Addrs[0]})
			defer client.Close()
			client.AddHook(server)
			n := c.node(client)

			tenants := []string{known, unknown, lost}
			calls, verdicts := make([]store.Call, len(tenants)), make([]store.Verdict, len(tenants))
			plan := store.NewKeyPlan([]*quota.Limit{{Name: "minute", Units: 10, Window: time.Minute}})
			for i, tenant := range tenants {
				calls[i] = limitertest.CallOf(plan, tenant, 1)
			}
			n.exec(context.Background(), calls, verdicts)
			if !slices.Equal(server.sent, row.sent) {
				t.Errorf("sent %v, want %v", server.sent, row.sent)
			}
			for i, tenant := range tenants {
				v, want := verdicts[i], row.want[tenant]
				if !errors.Is(v.Err, want) || want == nil && v.Outcome != store.Admitted {
					t.Errorf("%s: %+v, want %v", tenant, v, want)
				}
			}
		})
	}
}

// In a cluster the record of what the shared partition admits lies in its slot, not in the
// tenant's: it is replayed as long as the tenant has no place there. The caller's call is
// as it was.
func clusterSharedRecord(t *testing.T, o Options) {
	s, _ := nodeSetStore(t, o)
	plan := store.NewKeyPlan([]*quota.Limit{{Name: "hour", Units: 10, Window: time.Hour}})
	for _, row := range []struct {
		partition, tenant string
		outcome           byte
	}{
		{"", "acme", store.Admitted}, {"", "acme", store.Replayed}, {"", "globex", store.Admitted}, {"globex", "globex", store.Admitted}, {"", "globex", store.Replayed}, {"globex", "globex", store.Replayed},
	} {
		c := limitertest.CallOf(plan, row.partition, 1)
		c.Record, c.Print = store.RecordKey(row.tenant, "k"), "p"
		if v, err := limitertest.DecideOne(s, c); err != nil || v.Outcome != row.outcome {
			t.Errorf("%s in partition %q: %c, %v; want %c", row.tenant, row.partition, v.Outcome, err, row.outcome)
		}
		if c.Record != store.RecordKey(row.tenant, "k") {
			t.Errorf("the caller's record is %s now", c.Record)
		}
	}
	for _, partition := range []string{"", "initech"} { // what memory has admitted is written where the next call looks
		c := limitertest.CallOf(plan, partition, 1)
		c.Record, c.Print = store.RecordKey("initech", "k"), "p"
		a := &store.Admission{Record: c.Record, Key: c.Keys[0], Print: "p", Plan: plan, Ceilings: plan.Capacities, Limits: make([]store.LimitVerdict, 1)}
		s.Remember(t.Context(), []*store.Admission{a}, func(*store.Admission) int64 { return 0 }, func(int, bool) {})
		if v, err := limitertest.DecideOne(s, c); err != nil || v.Outcome != store.Replayed {
			t.Errorf("initech in partition %q, of what memory has admitted: %c, %v", partition, v.Outcome, err)
		}
	}
}
