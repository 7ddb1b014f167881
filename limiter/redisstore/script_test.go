package redisstore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/regiond/regiond/limiter/limitertest"
	"github.com/regiond/regiond/limiter/store"
	"github.com/regiond/regiond/quota"
	"github.com/regiond/regiond/test/oracle"
	"github.com/regiond/regiond/test/redisserver"
)

// perHour is a question about a log that nothing leaves during a test.
func perHour(units int64) *limitertest.Question {
	return limitertest.Ask(&quota.Limit{Name: "hour", Units: units, Window: time.Hour})
}

// partsOf is a reply: integers, texts, and nil, between bars.
func partsOf(text string) (reply []any) {
	for part := range strings.SplitSeq(text, "|") {
		n, err := strconv.ParseInt(part, 10, 64)
		switch {
		case err == nil:
			reply = append(reply, n)
		case part == "nil":
			reply = append(reply, nil)
		default:
			reply = append(reply, part)
		}
	}
	return reply
}

const replyHead = "n.1 1795198405260197"

var replyQuestion = limitertest.Ask(
	&quota.Limit{Name: "a", Units: 3, Window: time.Second}, &quota.Limit{Name: "b", Units: 5, Window: time.Minute, Scope: quota.ScopeGlobal})

// FuzzReplies decodes whatever a server may say: never a panic, never a verdict
// for another call's nonce, and never a number that makes no sense.
func FuzzReplies(f *testing.F) {
	calls := []store.Call{replyQuestion.Call("acme", store.OpCheck, 1, nil), replyQuestion.Call("acme", store.OpCheck, 2, nil)}
	const admitted = "a|2|0|1000|4|0|60000|0|1795198405260000|89759920|4"
	for _, seed := range []string{
		admitted + "|" + admitted, "d|0|999|999|1|0|60000|0|0|0|0|x", "x|e|WRONGTYPE Operation against a key", "l|17|3|1|l|0|0|0",
		`m|1 2 0 1000 4 0 60000 0 0 0 0 {"Limits":[{"Place":0,"Ceiling":3,"Name":"a","Units":3,"WindowUS":1000000},` +
			`{"Place":1,"Ceiling":5,"Name":"b","Units":5,"WindowUS":60000000,"Scope":1}]}|` +
			`m|1 2 0 1000 {"Limits":[{"Place":0,"Ceiling":1,"Name":"z","Units":9,"WindowUS":1}]}`,
		`m|1 2 0 1000 {"Limits":[{"Place":0,"Ceiling":3,"Name":"a","Units":3,"WindowUS":0}]}|x`,
		"m|2 0 1000|m|2 0 1000 4 0 60000 0 0 0 0 9 9", admitted + "|x|x", admitted, "a|nan|0|inf|x", "a|nil|x", "a|-1|0|1000", "|x", "7|x", "2|4|17|3|1|" + admitted,
	} {
		f.Add(replyHead + "|" + seed)
	}
	for _, seed := range []string{"n.2 1795198405260197|x|x", "n.1 nan|x|x", "n.1 1|x|x", "7|x|x", ""} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		reply := partsOf(text)
		v := make([]store.Verdict, len(calls))
		err := parseReplies(reply, "n.1", calls, v)
		if err == nil && (!strings.HasPrefix(text, "n.1 ") || len(reply) < 1+len(calls)) {
			t.Fatalf("took %q for the reply to n.1", text)
		}
		for i := range v {
			if err != nil || v[i].Err != nil || v[i].Outcome == oracle.Reused || v[i].Outcome == store.Lost {
				continue
			}
			if !strings.ContainsRune("adm", rune(v[i].Outcome)) || len(v[i].Limits) != 2 || v[i].StoreUS <= 0 {
				t.Fatalf("%q became %+v", text, v[i])
			}
			if a := v[i].Earlier; a != nil {
				order := slices.Sorted(slices.Values(a.Plan.Order))
				for n := range a.Limits {
					if order[n] != n || a.Ceilings[n] < 0 || a.Plan.Limits[n].Window <= 0 {
						t.Fatalf("%q became %+v", text, a)
					}
				}
			}
			for _, l := range v[i].Limits {
				if l.Remaining < 0 || l.WaitUS < -1 || l.ResetUS < 0 || min(l.Counter.Generation, l.Counter.Bucket, l.Counter.Units) < 0 {
					t.Fatalf("%q became %+v", text, v[i])
				}
			}
		}
	})
}

// A verdict has all of its plan and no more.
func TestReplies(t *testing.T) {
	limits := []store.LimitVerdict{{Remaining: 2, ResetUS: 1e6}, {Remaining: 4, WaitUS: -1, ResetUS: 6e7, Over: 9, Counter: quota.Counter{Generation: 17, Bucket: 3, Units: 1}}}
	common := []store.LimitVerdict{{Remaining: 2, ResetUS: 1e6}, {Remaining: 4, ResetUS: 6e7, Counter: limits[1].Counter}}
	for _, row := range []struct {
		parts string
		want  byte // 0 for an error
	}{
		{"a|2|0|1000000|4|-1|60000000|9|17|3|1", store.Admitted},
		{"d|2|0|1000000|4|-1|60000000|9|17|3|1", store.Denied},
		{"a|2|0|1000000|4|-1|60000000|9|17|3", 0},
		{"a|2|0|1000000", 0},
		{"a|2|0|1000000|4|-1|60000000|9|17|3|1|4", 0},
		{"a|-2|0|1000000|4|-1|60000000|9|17|3|1", 0},
		{"a|2|0|1000000|4|-2|60000000|9|17|3|1", 0},
		{"a|2|0|1000000|4|-1|60000000|9|17 3|1", 0},
		{"2|4|17|3|1", store.Admitted},
		{"2|4|17|3", 0},
		{"2|4|17|3|1|4", 0},
		{"2|-4|17|3|1", 0},
		{"o|2", 0},
		{"b|2|0|1000000|4|-1|60000000|9|17|3|1", 0},
		{"x", store.Reused},
	} {
		v := make([]store.Verdict, 1)
		err := parseReplies(partsOf(replyHead+"|"+row.parts), "n.1", []store.Call{replyQuestion.Call("acme", store.OpCheck, 1, nil)}, v)
		if (err == nil) != (row.want != 0) || err == nil && v[0].Outcome != row.want {
			t.Errorf("%s: %+v, %v", row.parts, v[0], err)
		}
		want := limits
		if row.parts[0] == '2' {
			want = common
		}
		if row.want != 0 && row.want != store.Reused && !slices.Equal(v[0].Limits, want) {
			t.Errorf("%s: %+v, want %+v", row.parts, v[0].Limits, want)
		}
	}
}

// TestVerdictErrors: a store that refuses is not taken for a partition that cannot be
// read, nor the other way round because a key or a message contains a code.
func TestVerdictErrors(t *testing.T) {
	calls := []store.Call{perHour(1).Call("acme", store.OpCheck, 1, nil)}
	for text, refused := range map[string]bool{
		"OOM command not allowed when used memory > 'maxmemory'. script: 3331c7, on @user_script:83.":                true,
		"-OOM command not allowed when used memory > 'maxmemory'.":                                                   true,
		"@user_script: 83: -OOM command not allowed when used memory > 'maxmemory'.":                                 true,
		"READONLY You can't write against a read only replica. script: 3331c7, on @user_script:83.":                  true,
		"@user_script: 83: -READONLY You can't write against a read only replica.":                                   true,
		"@user_script: 7: -MISCONF Redis is configured to save RDB snapshots, but it is unable to persist":           true,
		"MISCONF Redis is configured to save RDB snapshots, but it's currently unable to persist":                    true,
		"NOREPLICAS Not enough good replicas to write.":                                                              true,
		"@user_script: 7: -NOREPLICAS Not enough good replicas to write.":                                            true,
		"NOPERM User default has no permissions to run the 'rpush' command":                                          true,
		"@user_script: 7: -NOPERM The user executing the script can't run this command or subcommand":                true,
		"ERR The user executing the script can't run this command or subcommand script: 3331c7, on @user_script:83.": true,
		"GARBAGE in rl:{OOM}:l:OOM:::":                                                  false,
		"GARBAGE in @user_script: 83: -OOM :x":                                          false,
		"WRONGTYPE Operation against a key holding the wrong kind of value":             false,
		"@user_script: 83: WRONGTYPE Operation against a key: -OOM command not allowed": false,
		"user_script:83: attempt to compare nil with number":                            false,
		"OOMPH is no code": false,
		"":                 false,
	} {
		v := make([]store.Verdict, 1)
		ok(t, parseReplies([]any{"n.1 1795198405260197", "e", text}, "n.1", calls, v))
		e := (*store.Error)(nil)
		if is := errors.As(v[0].Err, &e) && e.Reason == quota.ReasonRedisRefused; is != refused || errors.Is(v[0].Err, store.ErrPartition) == refused {
			t.Errorf("%q became %v, refused: want %v", text, v[0].Err, refused)
		}
	}
}

// What another store has admitted is replayed with its own numbers, under whatever limits are in force.
func TestRememberedNumbers(t *testing.T) {
	_, s := onRedis(t)
	plan := store.NewKeyPlan([]*quota.Limit{
		{Name: "hour", Units: 5, Window: time.Hour},
		{Name: "level", Units: 7, Window: time.Minute, Algorithm: quota.GCRA, Burst: 9},
		{Name: "bound", Units: 80, Window: time.Minute, Scope: quota.ScopeGlobal, MaxOvershoot: quota.Strict},
		{Name: "global", Units: 90, Window: time.Minute, Scope: quota.ScopeGlobal},
	})
	was := &store.Admission{
		Record: store.RecordKey("acme", "k"), Print: "p", Plan: plan, Ceilings: []int64{5, 40, 60, 9},
		Limits: []store.LimitVerdict{{Remaining: 4, ResetUS: 1}, {Remaining: 39, ResetUS: 2}, {Remaining: 59, ResetUS: 3}, {Remaining: 8, ResetUS: 4}},
		US:     5_000_000, Hold: store.HoldVerdict{ID: 3, ExpiresUS: 35_000_000}, // by a clock of its own
	}
	known := 0
	s.Remember(t.Context(), []*store.Admission{was}, func(*store.Admission) int64 { return 7_000_000 }, func(_ int, kept bool) {
		if kept {
			known++
		}
	})
	call := perHour(5).Call("acme", store.OpCheck, 1, nil)
	call.Record, call.Print = was.Record, was.Print
	v, err := limitertest.DecideOne(s, call)
	if err != nil || known != 1 || v.Outcome != store.Replayed {
		t.Fatalf("%d are known: %+v, %v", known, v, err)
	}
	a := v.Earlier
	if left := v.Hold.ExpiresUS - a.US; v.Hold.ID != 3 || left != 30_000_000 {
		t.Errorf("hold %d ends %d µs after the admission", v.Hold.ID, left)
	}
	if !slices.Equal(a.Plan.Order, plan.Order) || !slices.Equal(a.Ceilings, was.Ceilings) || a.Plan.Limits[0] != call.Plan.Limits[0] {
		t.Errorf("got %+v of %+v", a, a.Plan)
	}
	for i, l := range a.Plan.Limits {
		want := plan.Limits[i]
		if l.Name != want.Name || l.Units != want.Units || l.Window != want.Window || l.Scope != want.Scope ||
			a.Limits[i].Remaining != was.Limits[i].Remaining || a.Limits[i].ResetUS != was.Limits[i].ResetUS {
			t.Errorf("got %+v of %+v, want %+v of %+v", a.Limits[i], l, was.Limits[i], want)
		}
	}
}

// A record that says nothing sensible of its limits is garbage of its own partition: the others of the call are decided.
func TestGarbledRecord(t *testing.T) {
	srv, s := onRedis(t)
	calls := []store.Call{perHour(5).Call("acme", store.OpCheck, 1, nil), perHour(5).Call("other", store.OpCheck, 1, nil)}
	calls[0].Record, calls[0].Print = store.RecordKey("acme", "k"), "p"
	const hour = `{"Place":0,"Ceiling":5,"Name":"hour","Units":5,"WindowUS":3600000000`
	of := func(limits ...string) string { return ` {"Policy":"p","Limits":[` + strings.Join(limits, ",") + `]}` }
	good := "4 0 1000" + of(hour+"}")
	for i, garbage := range []string{
		good, "", "4 0 1000", of(hour + "}"), "4 0" + of(hour+"}"), "4 0 1000 9" + of(hour+"}"), good + "x", good[:len(good)-1],
		"4 0 1000" + of(), "4 0 1000 4 0 1000" + of(hour+"}", hour+"}"), strings.Replace(good, `"p"`, `" "`, 1),
		strings.Replace(good, "0,", "1,", 1), strings.Replace(good, "0,", "-1,", 1), strings.Replace(good, `"Ceiling":5`, `"Ceiling":-5`, 1),
		strings.Replace(good, `"Units":5`, `"Units":-5`, 1), strings.Replace(good, "3600000000", "0", 1),
		"4 0 1000" + of(hour+`,"Algorithm":9}`), "4 0 1000" + of(hour+`,"Algorithm":4}`), "4 0 1000" + of(hour+`,"Calendar":"hour-1-UTC"}`),
		"4 0 1000" + of(hour+`,"Algorithm":4,"Calendar":"hour-0-UTC"}`),
	} {
		ok(t, srv.Client().Set(t.Context(), calls[0].Record, fmt.Sprintf("%d p %s", srv.Time(), garbage), time.Minute).Err())
		v := make([]store.Verdict, len(calls))
		s.Decide(t.Context(), calls, v)
		if bad := errors.Is(v[0].Err, store.ErrPartition); bad != (i > 0) || v[1].Err != nil {
			t.Errorf("%q: %+v and %+v", garbage, v[0], v[1])
		}
	}
}

// TestScriptIsLoadedOnce loses the script in each way that Redis can: it is sent
// again once, and what was asked is charged exactly once.
func TestScriptIsLoadedOnce(t *testing.T) {
	srv, s := onRedis(t)
	q := perHour(10)
	ctx := context.Background()
	for _, row := range []struct {
		name string
		lose func()
		left int64
	}{
		{"a Redis that has never seen it", func() {}, 9},
		{"nothing lost", func() {}, 8},
		{"SCRIPT FLUSH", func() { srv.Client().ScriptFlush(ctx) }, 7},
		{"a restart", func() {
			srv.Restart()
			limitertest.Eventually(t, 5*time.Second, "the store finds connections to the restarted server", func() bool {
				_, err := s.Eval(ctx, "return 1", "x")
				return err == nil
			})
		}, 9},
	} {
		row.lose()
		ok(t, srv.Client().ConfigResetStat(ctx).Err())
		v, err := limitertest.Decide(s, q.Call("acme", store.OpCheck, 1, nil))
		if err != nil || v[0].Outcome != oracle.Admitted || v[0].Limits[0].Remaining != row.left {
			t.Errorf("%s: %+v %v, want %d left", row.name, v, err, row.left)
		}
		loads := int64(1)
		if row.name == "nothing lost" {
			loads = 0
		}
		if n := srv.Calls(t, "script|load"); n != loads {
			t.Errorf("%s: the script was sent %d times, want %d", row.name, n, loads)
		}
		if n := srv.Calls(t, "rpush"); n != 1 {
			t.Errorf("%s: %d charges for one check", row.name, n)
		}
	}
}

// fill writes a log of cost-1 entries that are so many µs apart and end at last. header stands behind the first.
func fill(t *testing.T, c *redis.Client, key, header string, entries, apart, last int64) {
	t.Helper()
	ctx := context.Background()
	for done := int64(0); done < entries; {
		values := make([]any, 0, 10_000)
		for ; done < entries && len(values) < cap(values); done++ {
			stamp := last - (entries-1-done)*apart
			if values = append(values, stamp); done == 0 {
				values[0] = fmt.Sprint(stamp) + header
			}
		}
		ok(t, c.RPush(ctx, key, values...).Err())
	}
}

// A log in use holds what its window does, and few elements more, whatever its limit. A check of it takes few commands more
// than of one that has nothing outside the window yet.
func TestLogForgets(t *testing.T) {
	srv, s, now := onTimedRedis(t, limitertest.TimedLua)
	const inside = 100
	for _, row := range []struct {
		name   string
		limits []*quota.Limit
		more   int64 // commands a check
	}{
		{"one window", []*quota.Limit{{Name: "l", Units: 1000, Window: time.Second}}, 3},
		{"two windows", []*quota.Limit{{Name: "l", Units: 1000, Window: time.Second}, {Name: "short", Units: 500, Window: time.Second / 4}}, 4},
		{"a bound", []*quota.Limit{{Name: "l", Units: 1000, Window: time.Second, Scope: quota.ScopeGlobal, MaxOvershoot: quota.Strict}}, 6},
	} {
		flush(t, srv.Client())
		us, young := limitertest.Epoch, int64(0)
		call := limitertest.Ask(row.limits...).Call("acme", store.OpCheck, 1, nil)
		if row.limits[0].MaxOvershoot > 0 {
			call = bounded(call, 1000)
		}
		for window := range int64(12) {
			ok(t, srv.Client().ConfigResetStat(context.Background()).Err())
			for n := range int64(inside) {
				us += time.Second.Microseconds() / inside
				now(us)
				v, err := limitertest.Decide(s, call)
				if left := 1000 - min(window*inside+n+1, inside); err != nil || v[0].Outcome != store.Admitted || v[0].Limits[0].Remaining != left {
					t.Fatalf("%s, window %d: %+v, %v, want %d left", row.name, window, v, err, left)
				}
			}
			commands, _ := scriptCommands(t, srv.Client())
			if length := srv.Client().LLen(context.Background(), call.Keys[0]).Val(); length > inside*104/100+8 {
				t.Errorf("%s: after window %d the log has %d elements, of which %d are inside", row.name, window, length, inside)
			}
			if window == 0 {
				young = commands
			} else if commands > young+row.more*inside {
				t.Errorf("%s: %d commands for %d checks in window %d, %d in the first", row.name, commands, inside, window, young)
			}
		}
	}
}

// What was used within a bounded window stays in the log for as long as the window may get, and a call outside its fence
// drops what is old by the fence: TIME may be that of a step.
func TestBoundedLogForgetsLater(t *testing.T) {
	srv, s, now := onTimedRedis(t, limitertest.TimedLua)
	window := hour().Limits[0].Window.Microseconds()
	for _, row := range []struct {
		name  string
		op    store.Op
		after int64 // µs
		step  int64 // of TIME, by which it is outside the fence
		kept  bool
	}{
		{"a check when a clock may yet turn out to be fast", store.OpCheck, window * 103 / 100, 0, true},
		{"a check", store.OpCheck, window * 105 / 100, 0, false},
		{"a report", store.OpReport, window * 105 / 100, 0, false},
		{"a report outside its fence", store.OpReport, window * 103 / 100, window, true},
		{"an old fence", store.OpReport, window * 105 / 100, window, false},
	} {
		flush(t, srv.Client())
		const each = 24
		charge := func(at int64, op store.Op, step int64) {
			t.Helper()
			now(at + step)
			for i := range each {
				c := bounded(hour().Call("acme", op, 1, nil), 900)
				c.Bounds[0].ToUS = at
				if v, err := limitertest.Decide(s, c); err != nil || v[0].Outcome != store.Admitted {
					t.Fatalf("%s, %d: %+v, %v", row.name, i, v, err)
				}
			}
		}
		charge(limitertest.Epoch, store.OpCheck, 0)
		charge(limitertest.Epoch+row.after, row.op, row.step)
		c := hour().Call("acme", store.OpCheck, 1, nil)
		if n := srv.Client().LLen(context.Background(), c.Keys[0]).Val(); (n == 2*each) != row.kept {
			t.Errorf("%s: %d elements of %d are left", row.name, n, 2*each)
		}
	}
}

// A long log is searched once in a call. What is found there stays true while checks of the call are charged, drop what
// is old, only look, and come at another cost.
func TestLongLogInOneCall(t *testing.T) {
	srv := redisserver.Start(t, redisserver.Options{})
	const minute, inside = int64(60_000_000), 50
	s := newRedis(t, srv.Addr(), "")
	must(limitertest.Decide(s, perHour(1).Call("warm", store.OpCheck, 1, nil)))(t) // loads the script
	for _, units := range []int64{100, 1000} {                                     // each charge drops an element of the first
		q := limitertest.Ask(&quota.Limit{Name: "l", Units: units, Window: time.Minute})
		flush(t, srv.Client())
		call := q.Call("acme", store.OpCheck, 1, nil)
		key := call.Keys[0]
		fill(t, srv.Client(), key, call.Plan.Wire[2].(string), 50, 10, srv.Time()-2*minute)
		fill(t, srv.Client(), key, "", inside, 10, srv.Time()-minute/60)
		var calls []store.Call
		for _, cost := range []int64{1, 1, 0, 1, 1, 0, 2, 1, 1} {
			op := store.OpCheck
			if cost == 0 {
				op = store.OpPeek
			}
			calls = append(calls, q.Call("acme", op, max(1, cost), nil))
		}
		ok(t, srv.Client().ConfigResetStat(context.Background()).Err())
		v := must(limitertest.Decide(s, calls...))(t)
		left := units - inside
		for i := range v {
			if calls[i].Op == store.OpCheck {
				left -= calls[i].Cost
			}
			if v[i].Err != nil || v[i].Outcome != oracle.Admitted || v[i].Limits[0].Remaining != left {
				t.Errorf("limit of %d, check %d: %+v, want %d left", units, i, v[i], left)
			}
		}
		if n := srv.Calls(t, "evalsha"); n != 1 {
			t.Errorf("%d script calls", n)
		}
	}
}

// TestCommandsPerDecision counts what one decision asks of Redis inside the script.
func TestCommandsPerDecision(t *testing.T) {
	srv := redisserver.Start(t, redisserver.Options{})
	ctx := context.Background()
	const minute = int64(60_000_000)
	s := newRedis(t, srv.Addr(), "")
	must(limitertest.Decide(s, perHour(1).Call("warm", store.OpCheck, 1, nil)))(t) // loads the script
	for _, row := range []struct {
		name    string
		units   int64 // L
		entries int64
		apart   int64 // µs between entries
		age     int64 // of the newest, µs
		cost    int64
		outcome byte
		most    int64 // commands
	}{
		{"a full log of 10,000 denies", 10_000, 10_000, 10, 1000, 1, oracle.Denied, 4},
		{"all of it is inside the window", 10_000, 9_000, 10, 1000, 1, oracle.Admitted, 7},
		{"100,000 entries, all expired", 100_000, 100_000, 10, 2 * minute, 1, oracle.Admitted, 60},
		{"100,000 entries, half of them expired", 100_000, 100_000, 1200, 1000, 1, oracle.Admitted, 60},
		{"100,000 entries, half of them expired, a larger cost", 100_000, 100_000, 1200, 1000, 40_000, oracle.Admitted, 60},
		{"100,000 entries, a cost that does not fit", 100_000, 100_000, 1200, 1000, 90_000, oracle.Denied, 60},
		{"100,000 entries under a limit of 10", 10, 100_000, 10, 2 * minute, 1, oracle.Admitted, 60},
	} {
		q := limitertest.Ask(&quota.Limit{Name: "l", Units: row.units, Window: time.Minute})
		call := q.Call("acme", store.OpCheck, row.cost, nil)
		quickest := int64(1 << 62) // a starved machine may stop Redis in mid-script; it will not do so each time
		for try := 0; try < 5 && quickest > 5000; try++ {
			flush(t, srv.Client())
			fill(t, srv.Client(), call.Keys[0], call.Plan.Wire[2].(string), row.entries, row.apart, srv.Time()-row.age)
			ok(t, srv.Client().ConfigResetStat(ctx).Err())
			v, err := limitertest.Decide(s, call)
			if err != nil || v[0].Outcome != row.outcome {
				t.Fatalf("%s: %+v %v", row.name, v, err)
			}
			commands, us := scriptCommands(t, srv.Client())
			if commands--; commands > row.most { // without the TIME behind the script
				t.Errorf("%s: %d commands in the script, want at most %d", row.name, commands, row.most)
			}
			quickest = min(quickest, us)
		}
		if quickest > 5000 {
			t.Errorf("%s: the script took %d µs at best", row.name, quickest)
		}
		if row.outcome == oracle.Admitted && row.cost == 1 { // trimmed at every eighth length
			for range 7 {
				must(limitertest.Decide(s, call))(t)
			}
		}
		if n := srv.Client().LLen(ctx, call.Keys[0]).Val(); n > row.units+7 {
			t.Errorf("%s: the log has %d entries, %d units are all that it can need", row.name, n, row.units)
		}
	}
}

// scriptCommands counts the commands that scripts ran since the statistics were
// reset, and the microseconds that scripts took.
func scriptCommands(t testing.TB, c *redis.Client) (commands, us int64) {
	t.Helper()
	info := must(c.Info(context.Background(), "commandstats").Result())(t)
	for line := range strings.Lines(info) {
		var calls, spent int64
		name, rest, ok := strings.Cut(strings.TrimPrefix(line, "cmdstat_"), ":")
		if _, err := fmt.Sscanf(rest, "calls=%d,usec=%d,", &calls, &spent); !ok || err != nil {
			continue
		}
		switch {
		case name == "evalsha":
			us += spent
		case !strings.HasPrefix(name, "config") && !strings.HasPrefix(name, "client") && name != "hello" && name != "info":
			commands += calls
		}
	}
	return commands, us
}
