//go:build linux

package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// failure is an error that ends the scenario it happens in; see run in main.go.
type failure struct{ error }

func check(err error) {
	if err != nil {
		panic(failure{err})
	}
}

func must[T any](v T, err error) T {
	check(err)
	return v
}

// stage holds the processes of one scenario. They end in reverse order.
type stage struct {
	dir     string
	log     *os.File // of the processes
	ending  []func()
	regiond string   // the binary
	store   *process // Redis of every region; nil for one each
}

func newStage(regiond string) *stage {
	dir := must(os.MkdirTemp("", "bench"))
	return &stage{
		dir: dir, log: must(os.Create(filepath.Join(dir, "log"))), regiond: regiond,
		ending: []func(){func() { _ = os.RemoveAll(dir) }},
	}
}

func (s *stage) end() {
	for i := len(s.ending) - 1; i >= 0; i-- {
		s.ending[i]()
	}
}

// process is a server that was started.
type process struct {
	pid   int
	http  string // host:port for requests
	admin string // host:port of /readyz and /metrics
}

// start runs a program until the stage ends. Its standard input is open that long.
func (s *stage) start(env []string, name string, args ...string) *process {
	cmd := exec.Command(name, args...) //nolint:noctx // the stage ends it
	cmd.Env, cmd.Stderr = append(os.Environ(), env...), s.log
	input := must(cmd.StdinPipe())
	check(cmd.Start())
	s.ending = append(s.ending, func() {
		_ = input.Close()
		_ = cmd.Process.Signal(os.Interrupt)
		kill := time.AfterFunc(15*time.Second, func() { _ = cmd.Process.Kill() })
		defer kill.Stop()
		_ = cmd.Wait()
	})
	return &process{pid: cmd.Process.Pid}
}

// freeAddr is a loopback address that nothing listens at.
func freeAddr() string {
	l := must(net.Listen("tcp", "127.0.0.1:0")) //nolint:noctx // it returns at once
	defer l.Close()
	return l.Addr().String()
}

// eventually calls f until it returns nil, for a minute.
func eventually(f func() error) {
	for end := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) {
		err := f()
		if err == nil {
			return
		}
		if time.Now().After(end) {
			check(fmt.Errorf("after a minute: %w", err))
		}
	}
}

func (s *stage) redis() *process {
	addr := freeAddr()
	_, port, _ := strings.Cut(addr, ":")
	p := s.start(nil, "redis-server", "--bind", "127.0.0.1", "--port", port, "--save", "", "--appendonly", "no", "--dir", s.dir, "--logfile", os.DevNull)
	p.http = addr
	eventually(func() error {
		conn, err := net.Dial("tcp", addr) //nolint:noctx // loopback
		if err == nil {
			_ = conn.Close()
		}
		return err
	})
	return p
}

// region is one region of a topology, with its Redis and its regiond.
type region struct {
	*process
	name  string
	redis *process
}

// policies have one limit each. Nobody exceeds wide, not even one tenant; global is wide for all regions
// together, every second request exceeds narrow. two has two limits of one partition,
// split has two partitions.
const policies = `policies:
  - {name: wide, limits: [{name: sustained, units: 100000, per: 4s}]}
  - {name: narrow, limits: [{name: sustained, units: 1, per: 10m}]}
  - {name: global, limits: [{name: sustained, units: 100000, per: 1m, scope: global}]}
  - {name: two, limits: [{name: minute, units: 100000, per: 1m}, {name: hour, units: 100000, per: 1h}]}
  - {name: split, limits: [{name: minute, units: 100000, per: 1m}, {name: per-user, units: 100000, per: 1m, by: [user]}]}
tenants: {default: {policy: wide}}
`

// serve starts a regiond in each of n regions that know each other.
func (s *stage) serve(n, maxUnknown int, env ...string) []*region {
	text := &strings.Builder{}
	fmt.Fprint(text, "cluster: bench\nlog_level: error\nregions:\n")
	regions := make([]*region, n)
	addrs := make([][2]string, n)
	for i := range regions {
		regions[i] = &region{name: fmt.Sprintf("region-%d", i), redis: s.store}
		if s.store == nil {
			regions[i].redis = s.redis()
		}
		addrs[i] = [2]string{freeAddr(), freeAddr()}
		fmt.Fprintf(text, "  - {name: %s, http: %q, admin: %q, redis: {addrs: [%q]}", regions[i].name, addrs[i][0], addrs[i][1], regions[i].redis.http)
		if n > 1 {
			gossip := freeAddr()
			fmt.Fprintf(text, ", gossip: {bind: %q, advertise: %q}, nats: {embedded: true, gateway: %q}", gossip, gossip, freeAddr())
		}
		fmt.Fprintln(text, "}")
	}
	fmt.Fprintf(text, "%smax_unknown: %d\n", policies, maxUnknown)
	file := filepath.Join(s.dir, fmt.Sprintf("topology-%d.yaml", len(s.ending)))
	check(os.WriteFile(file, []byte(text.String()), 0o600))
	for i, r := range regions {
		// With these budgets a busy machine is not taken for an unavailable Redis.
		r.process = s.start(env, s.regiond, "serve", "--config", file, "--region", r.name, "--drain", "0s", "--redis-budget", "900ms", "--deadline", "2s")
		r.http, r.admin = addrs[i][0], addrs[i][1]
	}
	for _, r := range regions {
		r.awaitReady()
		eventually(func() error {
			_, body, err := post(r.http, check1("first", "global", 0)) //nolint:bodyclose // post closes it
			if err == nil && !bytes.Contains(body, []byte(`"mode":"global"`)) {
				err = fmt.Errorf("%s answers %s", r.name, body)
			}
			return err
		})
	}
	return regions
}

func (p *process) awaitReady() {
	eventually(func() error {
		res, err := http.Get("http://" + p.admin + "/readyz") //nolint:noctx // loopback
		if err != nil {
			return err
		}
		defer res.Body.Close()
		if res.StatusCode != http.StatusOK {
			return fmt.Errorf("/readyz: %s", res.Status)
		}
		return nil
	})
}

// bare starts a server that gives regiond's answers; see bare.go.
func (s *stage) bare(r *region) *process {
	take := func(policy string) bareAnswer {
		res, body, err := post(r.http, check1("first", policy, 0)) //nolint:bodyclose // post closes it
		check(err)
		res.Header.Del("Date")
		res.Header.Del("Content-Length")
		return bareAnswer{Status: res.StatusCode, Header: res.Header, Body: string(body)}
	}
	take("narrow")
	allowed, denied := take("wide"), take("narrow")
	if allowed.Status != http.StatusOK || denied.Status != http.StatusTooManyRequests {
		check(fmt.Errorf("the first answers are %+v and %+v", allowed, denied))
	}
	naive, skip := allowed, allowed
	naive.Naive, skip.Skip = true, true
	addr := freeAddr()
	config := must(json.Marshal(bareServer{Addr: addr, Redis: r.redis.http, Answers: map[string]bareAnswer{
		"/allowed": allowed, "/denied": denied, "/naive": naive, "/skip": skip,
	}}))
	p := s.start([]string{bareEnv + "=" + string(config)}, must(os.Executable()))
	p.http, p.admin = addr, addr
	p.awaitReady()
	return p
}

func post(addr, body string) (*http.Response, []byte, error) {
	res, err := http.Post("http://"+addr+"/v1/check", "application/json", strings.NewReader(body)) //nolint:noctx // loopback
	if err != nil {
		return nil, nil, err
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	return res, text, err
}

// metric is the sum of the samples of a metric.
func (p *process) metric(name string) float64 {
	res, err := http.Get("http://" + p.admin + "/metrics") //nolint:noctx // loopback
	check(err)
	defer res.Body.Close()
	body := must(io.ReadAll(res.Body))
	sum, found := 0.0, false
	for line := range strings.Lines(string(body)) {
		sample, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		if bare, _, _ := strings.Cut(sample, "{"); bare == name {
			sum, found = sum+must(strconv.ParseFloat(value, 64)), true
		}
	}
	if !found {
		check(fmt.Errorf("/metrics has no %s", name))
	}
	return sum
}

// cpu is the processor time that the process has used, in µs.
func (p *process) cpu() float64 {
	const schedClock = 2 // CPUCLOCK_SCHED of the kernel's clock ids
	var t unix.Timespec
	check(unix.ClockGettime(int32(^p.pid)<<3|schedClock, &t))
	return float64(t.Nano()) / 1e3
}

// httpPost is a request as it goes over the wire.
func httpPost(path, body string) []byte {
	return fmt.Appendf(nil, "POST %s HTTP/1.1\r\nHost: bench\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s",
		path, len(body), body)
}

// check1 is the body of one check.
func check1(prefix, policy string, i int) string {
	return fmt.Sprintf(`{"tenant":"%s%07d","policy":%q,"dimensions":{"user":"u"}}`, prefix, i, policy)
}

// checks are requests for that many tenants.
func checks(prefix, policy string, tenants int) [][]byte {
	requests := make([][]byte, tenants)
	for i := range requests {
		requests[i] = httpPost("/v1/check", check1(prefix, policy, i))
	}
	return requests
}

// batches are requests for that many tenants, each of them for several.
func batches(prefix, policy string, tenants, each int) [][]byte {
	var requests [][]byte
	for first := 0; first < tenants; first += each {
		bodies := make([]string, each)
		for i := range bodies {
			bodies[i] = check1(prefix, policy, first+i)
		}
		requests = append(requests, httpPost("/v1/check:batch", `{"checks":[`+strings.Join(bodies, ",")+`]}`))
	}
	return requests
}
