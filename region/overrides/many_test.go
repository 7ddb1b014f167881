package overrides_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"regexp"
	"runtime"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/regiond/regiond/quota"
	"github.com/regiond/regiond/region/overrides"
	"github.com/regiond/regiond/sync/wire"
	"github.com/regiond/regiond/test/redisserver"
)

// bus joins regions of one process each, and counts what they send.
type bus struct {
	all []*process

	mu        sync.Mutex
	bytes     int // of overrides
	longest   int // payload
	inASecond int // bytes, at most, of overrides that one process sends
	second    map[*process]time.Time
	since     map[*process]int
}

// join has a process be one of the bus, as the only one of a region.
func (b *bus) join(p *process, self quota.Process) {
	b.all = append(b.all, p)
	p.Connect(overrides.Peers{
		Self: self, Regions: func() []string { return nil }, Live: func() []quota.Process { return nil },
		Send: func(payload []byte) bool {
			b.count(p, payload)
			for _, to := range b.all {
				if to != p {
					_ = to.Receive(self, payload) // its only error is that the payload is none
				}
			}
			return true
		},
	})
}

func (b *bus) count(p *process, payload []byte) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.longest = max(b.longest, len(payload)); !bytes.HasPrefix(payload, []byte("o ")) {
		return
	}
	if now := time.Now(); now.Sub(b.second[p]) >= time.Second {
		b.second[p], b.since[p] = now, 0
	}
	b.bytes += len(payload)
	b.since[p] += len(payload)
	b.inASecond = max(b.inASecond, b.since[p])
}

// perScript is the processor's time that Redis took for a script, in the mean since its statistics were reset and it had used before:
// each has a bounded number of overrides. What scripts take by the wall clock is logged: on a busy machine that is others' time too.
func perScript(t *testing.T, s *redisserver.Server, before time.Duration) time.Duration {
	t.Helper()
	text, err := s.Client().Info(t.Context(), "latencystats").Result()
	if err != nil {
		t.Fatal(err)
	}
	t.Log(regexp.MustCompile(`latency_percentiles_usec_eval(?:sha)?:\S*`).FindString(text))
	return (processorTime(t, s) - before) / time.Duration(max(1, s.Calls(t, "eval")+s.Calls(t, "evalsha")))
}

// processorTime is what a Redis has used of processors since it started.
func processorTime(t *testing.T, s *redisserver.Server) (all time.Duration) {
	t.Helper()
	text, err := s.Client().Info(t.Context(), "cpu").Result()
	for _, m := range regexp.MustCompile(`(?m)^used_cpu_(?:user|sys):([\d.]+)`).FindAllStringSubmatch(text, -1) {
		seconds, _ := strconv.ParseFloat(m[1], 64)
		all += time.Duration(seconds * 1e9)
	}
	if err != nil || all == 0 {
		t.Fatalf("no processor time: %v\n%s", err, text)
	}
	return all
}

// TestMany: a process reads all overrides of its Redis, in short commands and little memory; and a region whose
// Redis is empty gets all of them from another one, in messages of a bounded size, a bounded number a second, and few of them twice.
// OVERRIDES=1000000 is the measured case: 5 s of processors, which is less by the clock where they are free, and 120 MB.
func TestMany(t *testing.T) {
	n, measured := 20_000, os.Getenv("OVERRIDES")
	if measured != "" {
		var err error
		if n, err = strconv.Atoi(measured); err != nil {
			t.Fatal(err)
		}
	}
	full, empty := redisserver.Start(t, redisserver.Options{}), redisserver.Start(t, redisserver.Options{})
	for _, s := range []*redisserver.Server{full, empty} {
		if err := s.Client().ConfigSet(t.Context(), "latency-tracking-info-percentiles", "50 99 99.9 100").Err(); err != nil {
			t.Fatal(err)
		}
	}
	if measured != "" { // on a busy machine the times are of others, without
		for _, s := range []*redisserver.Server{full, empty} {
			if err := syscall.Setpriority(syscall.PRIO_PROCESS, s.Pid(), -19); err != nil {
				t.Log("the longest times may be those of other processes:", err)
			}
		}
	}
	pipe, size := full.Client().Pipeline(), 0
	for i := range n {
		e := units(fmt.Sprintf("customer-%09d", i), "sustained", 600+i%5000)
		e.Override.Version = quota.OverrideVersion{Counter: 1, WallUS: 1_700_000_000_000_000 - int64(i), Region: "eu"}
		text := e.Override.Text()
		size += len(e.Override.Tenant) + len(text)
		pipe.HSet(t.Context(), overrides.KeyOf(e.Override.Tenant), e.Override.Tenant, text)
		if pipe.Len() == 10_000 || i == n-1 {
			if _, err := pipe.Exec(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
	}
	reset := func() {
		for _, s := range []*redisserver.Server{full, empty} {
			if err := s.Client().ConfigResetStat(t.Context()).Err(); err != nil {
				t.Fatal(err)
			}
		}
	}
	heap := func() int64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}

	cpu := func() (own, server time.Duration) {
		var u syscall.Rusage
		if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
			t.Fatal(err)
		}
		return time.Duration(u.Utime.Nano() + u.Stime.Nano()), processorTime(t, full)
	}

	giver := newProcess(t, eval(full.Client()))
	reset()
	before, began := heap(), time.Now()
	own, server := cpu()
	overrides.Load(t.Context(), giver.Overlay)
	loaded, took := giver.Size(), time.Since(began)
	ownThen, serverThen := cpu()
	mb := float64(heap()-before) / 1e6
	script := perScript(t, full, server)
	t.Logf("%d overrides loaded in %v; processor: %v, of Redis %v, %v a script; they take %.1f MB",
		loaded, took.Round(time.Millisecond), ownThen-own, serverThen-server, script, mb)
	if about := float64(overrides.Bytes(giver.Overlay)) / 1e6; measured != "" && (about < mb*0.8 || about > mb*1.25) {
		t.Errorf("it counts them as %.1f MB", about)
	}
	if loaded != int64(n) {
		t.Errorf("%d of %d overrides are known", loaded, n)
	}
	if measured != "" && (ownThen-own+serverThen-server > 5*time.Second || mb > 120 || script > time.Millisecond/2) {
		t.Error("that is more than 5 s of processors, 120 MB or half a millisecond")
	}

	b := &bus{second: map[*process]time.Time{}, since: map[*process]int{}}
	taker := newProcessOf(t, "us", eval(empty.Client()))
	b.join(giver, quota.Process{Region: "eu", Instance: "1", Boot: 1})
	b.join(taker, quota.Process{Region: "us", Instance: "1", Boot: 2})
	reset()
	began, server = time.Now(), processorTime(t, empty)
	giver.run(t)
	taker.run(t)
	for end := began.Add(2 * time.Minute); taker.Size() < int64(n); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("after %v the other region has %d", time.Since(began), taker.Size())
		}
	}
	took, script = time.Since(began), perScript(t, empty, server)
	b.mu.Lock()
	defer b.mu.Unlock()
	t.Logf("another region has them after %v: %.1f MB of %.1f travelled, at most %.1f MB a second and %d KB a message; a script took %v",
		took.Round(time.Millisecond), float64(b.bytes)/1e6, float64(size)/1e6, float64(b.inASecond)/1e6, b.longest/1000, script)
	if b.longest > wire.MaxPayload || b.bytes > 2*size || b.inASecond > 2*overrides.AnswerBytes {
		t.Error("that is more than twice of all, more in a second than answers may have in two, or a message is too long")
	}
	kept := 0
	for slice := range 256 {
		kept += int(empty.Client().HLen(context.WithoutCancel(t.Context()), fmt.Sprintf("rl:overrides:{%d}", slice)).Val())
	}
	if kept != n {
		t.Errorf("its Redis has %d of %d", kept, n)
	}
	if measured != "" && script > time.Millisecond/2 {
		t.Error("that is more than half a millisecond")
	}
}
