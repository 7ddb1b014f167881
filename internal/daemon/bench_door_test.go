//go:build linux

package daemon

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"
)

const (
	// doorRounds and doorTurn are how often and how long each load is applied.
	doorRounds = 7
	doorTurn   = 600 * time.Millisecond
	// doorTenants are asked for in turn; doorDenied of them are over their limit.
	doorTenants = 10_000
	doorDenied  = 100
	// doorBatch is how many checks a batch has.
	doorBatch = 10
	// paceRate is how many checks a second arrive where latency is measured, and
	// paceTurn for how long at a time.
	paceRate = 5_000
	paceTurn = 2 * time.Second
)

// benchDoorPolicies are one limit each: wide, which nobody reaches, and narrow, which
// the second request is over. standard is wide, and of all regions.
func benchDoorPolicies() string {
	return `policies:
  - {name: wide, limits: [{name: sustained, units: 100000, per: 1m}]}
  - {name: narrow, limits: [{name: sustained, units: 1, per: 10m}]}
  - {name: standard, limits: [{name: sustained, units: 100000, per: 1m, scope: global}]}
tenants: {default: {policy: wide}}
max_unknown: 1000000
`
}

// benchDoor is a regiond and a bare server that answers as it does.
type benchDoor struct {
	*benchStage
	scene *benchScene
	bare  *benchProcess
	turns *benchTurns
	close []func()
}

func openBenchDoor(b *testing.B) *benchDoor {
	b.Helper()
	s := newBenchStage(b, benchCrowd{}, 1)
	s.policies = benchDoorPolicies()
	d := &benchDoor{benchStage: s, scene: s.open(b, false)}
	d.turns = &benchTurns{redis: redisProcess(b, s.redis)}
	d.bare = beginBench(b, benchChild{Bare: &benchBare{Redis: s.redis.Addr(), Answers: d.answers(b)}})
	d.close = append(d.close, d.scene.close, d.bare.end)
	return d
}

func (d *benchDoor) end() {
	for _, c := range d.close {
		c()
	}
}

// answers are those that the bare server gives: taken from regiond.
func (d *benchDoor) answers(b *testing.B) map[string]benchAnswer {
	b.Helper()
	d.given(b, "narrow")
	allowed, denied := d.given(b, "wide"), d.given(b, "narrow")
	if allowed.Status != http.StatusOK || denied.Status != http.StatusTooManyRequests {
		b.Fatalf("the first answers are %+v and %+v", allowed, denied)
	}
	naive, drain := allowed, allowed
	naive.Naive, drain.Drain = true, true
	return map[string]benchAnswer{"/allowed": allowed, "/denied": denied, "/naive": naive, "/drain": drain}
}

func (d *benchDoor) given(b *testing.B, policy string) benchAnswer {
	b.Helper()
	body := strings.NewReader(rawCheck("first", policy, 0))
	r, err := http.NewRequestWithContext(context.Background(), http.MethodPost, d.scene.door.url+"/v1/check", body)
	if err != nil {
		b.Fatal(err)
	}
	res, err := d.scene.door.client.Do(r)
	if err != nil {
		b.Fatal(err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		b.Fatal(err)
	}
	res.Header.Del("Date")
	res.Header.Del("Content-Length")
	return benchAnswer{Status: res.StatusCode, Header: res.Header, Body: string(text)}
}

// load adds one that asks regiond, or with a path the bare server.
func (d *benchDoor) load(b *testing.B, name, path string, requests [][]byte, want string) *benchLoad {
	b.Helper()
	p := d.scene.one
	if path != "" {
		p = d.bare
		for i, r := range requests {
			requests[i] = bytes.Replace(r, []byte("/v1/check"), []byte(path), 1)
		}
	}
	t := &benchLoad{name: name, client: newRawClient(b, p.addrs[0], rawConns, requests, want), pid: p.cmd.Process.Pid, each: 1}
	d.turns.all, d.close = append(d.turns.all, t), append(d.close, t.client.close)
	return t
}

const (
	wantAllowed = `"allowed":true`
	wantExact   = `"basis":"exact"`
	wantMemory  = `"allowed":false`
)

// BenchmarkDoor is what checks over HTTP cost, over what a handler costs that does
// nothing but answer the same; everything on the processors that are there, the client
// included. Run it with -benchtime 1x: it takes most of a minute.
func BenchmarkDoor(b *testing.B) {
	d := openBenchDoor(b)
	defer d.end()
	bare := d.load(b, "bare, allowed", "/allowed", rawChecks("t", "wide", doorTenants), wantAllowed)
	allowed := d.load(b, "allowed", "", rawChecks("t", "wide", doorTenants), wantExact)
	hot := d.load(b, "one tenant", "", rawChecks("h", "wide", 1), wantExact)
	hot.before = func(turn int) { hot.client.requests = rawChecks(fmt.Sprint("h", turn, "x"), "wide", 1) }
	bareDenied := d.load(b, "bare, denied", "/denied", rawChecks("t", "wide", doorTenants), wantMemory)
	denied := d.load(b, "denied", "", rawChecks("t", "narrow", doorDenied), wantMemory)
	batch := d.load(b, "batches", "", rawBatches(doorTenants, doorBatch), wantExact)
	batch.each = doorBatch
	naive := d.load(b, "naive script", "/naive", rawChecks("t", "wide", doorTenants), wantAllowed)
	drain := d.load(b, "nothing but net/http", "/drain", rawChecks("t", "wide", doorTenants), wantAllowed)
	allowed.mallocs = func() float64 { return d.scene.metric(b, "go_memstats_mallocs_total", "") }
	drain.mallocs = func() float64 { return d.bareMallocs(b) }
	denied.client.saturate(b, benchLead) // the first of each tenant is not denied
	for b.Loop() {
		d.turns.run(b, doorRounds, 0, doorTurn)
		decisions := func(r *benchRound) float64 { return r.decisions }
		redis := func(r *benchRound) float64 { return r.redis }
		mallocs := func(r *benchRound) float64 { return r.mallocs }
		b.ReportMetric(allowed.over(bare, decisions), "allowed-ratio")
		b.ReportMetric(denied.over(bareDenied, decisions), "denied-ratio")
		b.ReportMetric(batch.over(allowed, decisions), "batch-ratio")
		b.ReportMetric(hot.over(allowed, decisions), "hot-ratio")
		b.ReportMetric(allowed.over(bare, (*benchRound).both), "cpu-ratio")
		b.ReportMetric(allowed.over(naive, redis), "redis-ratio")
		b.ReportMetric(allowed.middle(mallocs)-drain.middle(mallocs), "mallocs/check")
		b.ReportMetric(allowed.middle(decisions), "decisions/s")
		b.ReportMetric(allowed.middle((*benchRound).both), "cpu-us/check")
		b.ReportMetric(bare.middle((*benchRound).both), "cpu-us/bare")
		b.ReportMetric(allowed.middle(redis), "redis-us/check")
	}
}

// rawBatches ask for so many tenants, some in each batch.
func rawBatches(tenants, each int) [][]byte {
	var requests [][]byte
	for first := 0; first < tenants; first += each {
		var checks []string
		for i := first; i < first+each; i++ {
			checks = append(checks, rawCheck("t", "wide", i))
		}
		requests = append(requests, rawPost("/v1/check:batch", `{"checks":[`+strings.Join(checks, ",")+`]}`))
	}
	return requests
}

func (d *benchDoor) bareMallocs(b *testing.B) float64 {
	b.Helper()
	a := newBenchAsker(d.bare.addrs[0], 1)
	defer a.client.CloseIdleConnections()
	_, text, err := a.get("/mallocs")
	if err != nil {
		b.Fatal(err)
	}
	n, err := strconv.ParseFloat(string(text), 64)
	if err != nil {
		b.Fatal(err)
	}
	return n
}

// BenchmarkPace is how long a check takes while five thousand a second arrive at even
// distances, over how long the bare handler takes.
func BenchmarkPace(b *testing.B) {
	d := openBenchDoor(b)
	defer d.end()
	bare := d.load(b, "bare", "/allowed", rawChecks("t", "wide", doorTenants), wantAllowed)
	allowed := d.load(b, "allowed", "", rawChecks("t", "wide", doorTenants), wantExact)
	for b.Loop() {
		d.turns.run(b, doorRounds, paceRate, paceTurn)
		p50 := func(r *benchRound) float64 { return r.p50 }
		p99 := func(r *benchRound) float64 { return r.p99 }
		b.ReportMetric(allowed.over(bare, p50), "p50-ratio")
		b.ReportMetric(allowed.over(bare, p99), "p99-ratio")
		b.ReportMetric(allowed.middle(p50), "p50-ms")
		b.ReportMetric(allowed.middle(p99), "p99-ms")
		b.ReportMetric(allowed.over(bare, (*benchRound).both), "cpu-ratio")
	}
}

// BenchmarkScopes is how many checks of a global limit are decided in a second, over
// how many of a regional one: in one regiond of a mesh of three.
func BenchmarkScopes(b *testing.B) {
	s := newBenchStage(b, benchCrowd{Count: 1_000, Changed: 10, Buckets: 1}, 0)
	s.policies = benchDoorPolicies()
	sc := s.open(b, true)
	defer sc.close()
	turns := &benchTurns{redis: redisProcess(b, s.redis)}
	load := func(policy string) *benchLoad {
		c := newRawClient(b, sc.one.addrs[0], rawConns, rawChecks("t", policy, doorTenants), `"mode":"global"`)
		t := &benchLoad{name: policy, client: c, pid: sc.one.cmd.Process.Pid, each: 1}
		turns.all = append(turns.all, t)
		return t
	}
	regional, global := load("wide"), load("standard")
	defer regional.client.close()
	defer global.client.close()
	for b.Loop() {
		turns.run(b, doorRounds, 0, doorTurn)
		b.ReportMetric(global.over(regional, func(r *benchRound) float64 { return r.decisions }), "decisions-ratio")
		b.ReportMetric(global.over(regional, (*benchRound).both), "cpu-ratio")
		b.ReportMetric(global.over(regional, func(r *benchRound) float64 { return r.redis }), "redis-ratio")
	}
}
