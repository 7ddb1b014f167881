package redisstore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/regiond/regiond/limiter/limitertest"
	"github.com/regiond/regiond/limiter/store"
	"github.com/regiond/regiond/quota"
	"github.com/regiond/regiond/test/faultproxy"
	"github.com/regiond/regiond/test/redisserver"
)

// lostBudget is generous: the race detector on a shared machine must not be
// taken for a lost reply. late is by how much an answer may miss it there.
const (
	lostBudget = 250 * time.Millisecond
	late       = 500 * time.Millisecond
)

// charged reads what a log holds, in units, from the log itself.
func charged(t *testing.T, srv *redisserver.Server, key string) int64 {
	t.Helper()
	entries := must(srv.Client().LRange(context.Background(), key, 0, -1).Result())(t)
	total := int64(0)
	for _, e := range entries {
		fields, cost := strings.Split(e, ":"), int64(1)
		if len(fields) == 3 {
			cost = must(strconv.ParseInt(fields[2], 10, 64))(t)
		}
		total += cost
	}
	return total
}

// ledger is the answers that callers got, in units.
type ledger struct {
	allowed, ambiguous int64
	faults             int           // calls that were not decided
	slowest            time.Duration // of any answer
}

// within holds a ledger against what Redis has: all that was admitted
// was charged, and nothing beyond it but what nobody could know.
func (l *ledger) within(units int64) error {
	if units < l.allowed {
		return fmt.Errorf("%d units charged, %d were admitted", units, l.allowed)
	}
	if units > l.allowed+l.ambiguous {
		return fmt.Errorf("%d units charged, %d were admitted and %d ambiguous", units, l.allowed, l.ambiguous)
	}
	return nil
}

// lostCosts is where random costs come from, the same in each run, so that one that has
// failed can be repeated.
func lostCosts() *rand.Rand { return rand.New(rand.NewPCG(13, 1)) }

// spend asks n times for random costs, one after the other, each when no breaker is open,
// so that each fault meets a store that is being asked.
func spend(t *testing.T, s *Store, tenant string, n int) *ledger {
	t.Helper()
	costs := lostCosts()
	l, plan := &ledger{}, store.NewKeyPlan([]*quota.Limit{{Name: "minute", Units: 100_000, Window: time.Minute}})
	for range n {
		awaitState(t, s, true)
		call := limitertest.CallOf(plan, tenant, []int64{1, 1, 1, 2, 7}[costs.IntN(5)])
		start := time.Now()
		v, err := limitertest.DecideOne(s, call)
		l.slowest = max(l.slowest, time.Since(start))
		var e *store.Error
		switch {
		case err == nil && v.Outcome == store.Admitted:
			l.allowed += call.Cost
		case err == nil:
			t.Fatalf("%+v, want all admitted", v)
		case errors.As(err, &e) && e.Ambiguous:
			l.ambiguous += call.Cost
			l.faults++
		default:
			l.faults++
		}
	}
	return l
}

// lostStore is a store that has decided once, so that the script is loaded and
// a lost reply is a lost decision. Each fault gets a new one: a breaker that has
// opened before would be held off.
func lostStore(t *testing.T, addr string) *Store {
	t.Helper()
	s := newStore(t, Options{Addrs: []string{addr}, Budget: lostBudget})
	limitertest.KeepRunning(t, s)
	for spend(t, s, "warm", 1).faults > 0 {
		t.Log("the machine is busy: the first call came too late")
	}
	return s
}

var lossKinds = map[string]faultproxy.Kind{
	"swallowed": faultproxy.Swallow,
	"dropped":   faultproxy.Drop,
	"cut":       faultproxy.Cut,
	"stray":     faultproxy.Stray,
}

// Exactly the k-th reply is lost: whatever the loss looks like, Redis holds what
// callers were answered, and what is ambiguous at most once more.
func TestLostReplyChargesNothingTwice(t *testing.T) {
	srv := redisserver.Start(t, redisserver.Options{})
	proxy := faultproxy.Start(t, srv.Addr())
	for name, kind := range lossKinds {
		for k := 1; k <= 6; k++ {
			tenant := fmt.Sprint(name, k)
			t.Run(tenant, func(t *testing.T) {
				s := lostStore(t, proxy.Addr())
				struck := proxy.Arm(faultproxy.Fault{Kind: kind, Reply: k, Scripts: true})
				l := spend(t, s, tenant, 12)
				select {
				case <-struck:
				default:
					t.Fatal("the fault did not strike")
				}
				units := charged(t, srv, limitertest.OneCall(tenant, 1, 1).Keys[0])
				if err := l.within(units); err != nil {
					t.Error(err)
				}
				if l.faults == 0 || l.faults == 1 && units != l.allowed+l.ambiguous { // more only on a stalled machine
					t.Errorf("%d calls failed, %d units charged; want 1 and %d admitted with %d that were lost and carried out",
						l.faults, units, l.allowed, l.ambiguous)
				}
				if l.slowest > lostBudget+late {
					t.Errorf("an answer took %v, the budget is %v", l.slowest, lostBudget)
				}
			})
		}
	}
}

// untilDecided asks as a client does that gives each request a key.
func untilDecided(t *testing.T, s *Store, c store.Call) store.Verdict {
	t.Helper()
	for {
		awaitState(t, s, true)
		if v, err := limitertest.DecideOne(s, c); err == nil {
			return v
		}
	}
}

// Each of two measures alone keeps a lost reply from being followed by the same command
// again: the client's options, and the command.
func TestLostReplySentOnce(t *testing.T) {
	srv := redisserver.Start(t, redisserver.Options{})
	proxy := faultproxy.Start(t, srv.Addr())
	sha := srv.Client().ScriptLoad(context.Background(), "return redis.call('INCR', KEYS[1])").Val()
	options := func(retries int) *redis.Options {
		o := clientOptions(Options{Addrs: []string{proxy.Addr()}}).Simple()
		o.MaxRetries = retries
		return o
	}
	plain := func(c *redis.Client, args ...any) error { return c.Do(context.Background(), args...).Err() }
	atMostOnce := func(c *redis.Client, args ...any) error {
		_, err := once(context.Background(), c, args...)
		return err
	}
	for _, row := range []struct {
		what    string
		retries int
		send    func(c *redis.Client, args ...any) error
		want    int64
	}{
		{"the options", clientOptions(Options{}).MaxRetries, plain, 1},
		{"the command", 3, atMostOnce, 1},
		{"neither", 3, plain, 2},
	} {
		client := redis.NewClient(options(row.retries))
		t.Cleanup(func() { client.Close() })
		// A command that waits for a connection may give up before it is sent.
		for end := time.Now().Add(10 * time.Second); client.Ping(context.Background()).Err() != nil; {
			if time.Now().After(end) {
				t.Fatal("no answer to PING within 10s")
			}
		}
		proxy.Arm(faultproxy.Fault{Kind: faultproxy.Drop, Reply: 1, Scripts: true})
		err := row.send(client, "EVALSHA", sha, 1, row.what)
		if (err == nil) != (row.want == 2) {
			t.Errorf("%s: %v", row.what, err)
		}
		if n := srv.Client().Get(context.Background(), row.what).Val(); n != fmt.Sprint(row.want) {
			t.Errorf("%s: carried out %s times, want %d", row.what, n, row.want)
		}
	}
}

// redisReply is an error that came from Redis as a reply.
type redisReply string

func (r redisReply) Error() string { return string(r) }
func (redisReply) RedisError()     {}

// A refusal was not carried out; a dial that failed was not sent; of
// all else nobody can know. Silence of any kind is a timeout.
func TestClassify(t *testing.T) {
	dial := func(err error) error { return &net.OpError{Op: "dial", Err: err} }
	read := func(err error) error { return &net.OpError{Op: "read", Err: err} }
	for _, row := range []struct {
		err       error
		reason    quota.Reason
		ambiguous bool
	}{
		{redisReply("OOM command not allowed"), quota.ReasonRedisRefused, false},
		{redis.ErrPoolTimeout, quota.ReasonOverloaded, false},
		{redis.ErrPoolExhausted, quota.ReasonOverloaded, false},
		{redis.ErrClosed, quota.ReasonRedisDown, false},
		{dial(syscall.ECONNREFUSED), quota.ReasonRedisDown, false},
		{dial(os.ErrDeadlineExceeded), quota.ReasonRedisTimeout, false},
		{read(os.ErrDeadlineExceeded), quota.ReasonRedisTimeout, true},
		{os.ErrDeadlineExceeded, quota.ReasonRedisTimeout, true},
		{context.DeadlineExceeded, quota.ReasonRedisTimeout, true},
		{fmt.Errorf("dial: %w", context.DeadlineExceeded), quota.ReasonRedisTimeout, true},
		{read(syscall.ECONNRESET), quota.ReasonRedisDown, true},
		{io.EOF, quota.ReasonRedisDown, true},
		{errors.New("something else"), quota.ReasonRedisDown, true},
	} {
		e := classify(fmt.Errorf("wrapped: %w", row.err))
		if e.Reason != row.reason || e.Ambiguous != row.ambiguous || !errors.Is(e, row.err) {
			t.Errorf("%T %v: %v, ambiguous %v; want %v, %v", row.err, row.err, e.Reason, e.Ambiguous, row.reason, row.ambiguous)
		}
	}
}

// A connection breaks behind the reply of the script, before that of TIME: what was decided is known. In the middle of the
// reply it is not.
func TestReplyBeforeABrokenConnectionCounts(t *testing.T) {
	srv := redisserver.Start(t, redisserver.Options{})
	plan := store.NewKeyPlan([]*quota.Limit{{Name: "hour", Units: 10, Window: time.Hour}})
	for _, row := range []struct {
		tenant  string
		short   int64 // bytes of the reply that are lost
		decided bool
	}{{"whole", 0, true}, {"broken", 3, false}} {
		var cut atomic.Int64
		s := newStore(t, Options{
			Addrs: []string{srv.Addr()},
			Dial: func(ctx context.Context, network, addr string) (net.Conn, error) {
				conn, err := (&net.Dialer{}).DialContext(ctx, network, addr)
				return &cutConn{conn, &cut}, err
			},
		})
		s.probe(t.Context())
		c := limitertest.CallOf(plan, row.tenant, 1)
		cut.Store(1 + row.short)
		v, err := limitertest.DecideOne(s, c)
		e, _ := errors.AsType[*store.Error](err)
		unknown := e != nil && e.Ambiguous && e.Reason == quota.ReasonRedisDown
		if known := err == nil && v.Outcome == store.Admitted && v.Limits[0].Remaining == 9; known != row.decided || unknown == row.decided {
			t.Errorf("%s: %+v, %v", row.tenant, v, err)
		}
		if n := charged(t, srv, c.Keys[0]); n != 1 {
			t.Errorf("%s: %d are charged", row.tenant, n)
		}
	}
}

// cutConn breaks before the reply to TIME, and by as many bytes earlier as cut is above 1.
type cutConn struct {
	net.Conn
	cut *atomic.Int64
}

func (c *cutConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	short := int(c.cut.Load())
	at := bytes.LastIndex(b[:n], []byte("*2\r\n$10\r\n"))
	if short == 0 || at < 0 {
		return n, err
	}
	c.Close()
	return max(0, at+1-short), io.EOF
}
