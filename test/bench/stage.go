//go:build linux

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/regiond/regiond/test/ports"
	"github.com/regiond/regiond/test/redisserver"
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

// stage holds the processes of one scenario. They end in reverse order. It is a
// redisserver.TB.
type stage struct {
	dir     string
	log     *os.File // of the processes
	ending  []func()
	regiond string  // the binary
	loads   []*load // that the scenario prepared
}

func newStage(regiond string) *stage {
	dir := must(os.MkdirTemp("", "bench"))
	return &stage{
		dir: dir, log: must(os.Create(filepath.Join(dir, "log"))), regiond: regiond,
		ending: []func(){func() { _ = os.RemoveAll(dir) }},
	}
}

func (s *stage) end() {
	for _, f := range slices.Backward(s.ending) {
		f()
	}
}

func (s *stage) Helper()                           {}
func (s *stage) Cleanup(f func())                  { s.ending = append(s.ending, f) }
func (s *stage) TempDir() string                   { return must(os.MkdirTemp(s.dir, "")) }
func (s *stage) Context() context.Context          { return context.Background() }
func (s *stage) Fatal(args ...any)                 { check(errors.New(fmt.Sprint(args...))) }
func (s *stage) Fatalf(format string, args ...any) { check(fmt.Errorf(format, args...)) }
func (s *stage) Errorf(format string, args ...any) { fmt.Fprintf(os.Stderr, format+"\n", args...) }

// process is a server that was started.
type process struct {
	pid   int
	http  string // host:port for requests
	grpc  string // host:port of Envoy's rate limit service, if any
	admin string // host:port of /readyz and /metrics
}

// start runs a program until the stage ends. Its standard input is open that long.
func (s *stage) start(env []string, name string, args ...string) *process {
	cmd := exec.Command(name, args...) //nolint:noctx // the stage ends it
	cmd.Env, cmd.Stderr = append(os.Environ(), env...), s.log
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} // also when this program is killed
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

// region is one region of a topology, with its Redis and its regiond.
type region struct {
	*process
	name  string
	redis *process
}

// policies have limits that nobody comes near, not even one tenant; but every second
// request exceeds narrow. A tenant among busy ones uses a part of second. global is wide for all regions together. two and windows have
// limits of one partition, split has partitions of its own.
const policies = `policies:
  - {name: wide, limits: [{name: sustained, units: 100000, per: 4s}]}
  - {name: hour, limits: [{name: sustained, units: 100000, per: 1h}]}
  - {name: second, limits: [{name: sustained, units: 1000, per: 1s}]}
  - {name: narrow, limits: [{name: sustained, units: 1, per: 10m}]}
  - {name: global, limits: [{name: sustained, units: 100000, per: 1m, scope: global}]}
  - {name: two, limits: [{name: minute, units: 100000, per: 1m}, {name: hour, units: 100000, per: 1h}]}
  - {name: windows, limits: [{name: second, units: 90000, per: 1s}, {name: minute, units: 100000, per: 1m}, {name: hour, units: 100000, per: 1h}]}
  - {name: split, limits: [{name: minute, units: 100000, per: 1m}, {name: per-user, units: 100000, per: 1m, by: [user]}]}
tenants: {default: {policy: wide}}
`

// setup is what serve starts; the zero value is one region with a Redis of its own.
type setup struct {
	regions int
	env     []string
	rls     string // the file of a domain "bench" of Envoy's rate limit service; "" for none
}

// serve starts a regiond in each of some regions that know each other.
func (s *stage) serve(o setup) []*region {
	text := &strings.Builder{}
	fmt.Fprint(text, "cluster: bench\nlog_level: error\nregions:\n")
	regions := make([]*region, max(1, o.regions))
	addrs := make([][2]string, len(regions))
	for i := range regions {
		regions[i] = &region{name: fmt.Sprintf("region-%d", i)}
		srv := redisserver.Start(s, redisserver.Options{})
		regions[i].redis = &process{pid: srv.Pid(), http: srv.Addr()}
		addrs[i] = [2]string{ports.Addr(s), ports.Addr(s)}
		fmt.Fprintf(text, "  - {name: %s, http: %q, admin: %q, redis: {addrs: [%q]}", regions[i].name, addrs[i][0], addrs[i][1], srv.Addr())
		if len(regions) > 1 {
			gossip := ports.Addr(s)
			fmt.Fprintf(text, ", gossip: {bind: %q, advertise: %q}, nats: {embedded: true, gateway: %q}", gossip, gossip, ports.Addr(s))
		}
		fmt.Fprintln(text, "}")
	}
	fmt.Fprint(text, policies+"max_unknown: 1000000\n")
	if o.rls != "" {
		domain := filepath.Join(s.dir, "bench.yaml")
		check(os.WriteFile(domain, []byte(o.rls), 0o600))
		fmt.Fprintf(text, "rls: {domains: {bench: {file: %q, tenant: [tenant]}}}\n", domain)
	}
	file := filepath.Join(s.dir, fmt.Sprintf("topology-%d.yaml", len(s.ending)))
	check(os.WriteFile(file, []byte(text.String()), 0o600))
	for i, r := range regions {
		args, grpc := []string{"serve", "--config", file, "--region", r.name, "--drain", "0s"}, ""
		if o.rls != "" {
			grpc = ports.Addr(s)
			args = append(args, "--grpc", grpc)
		}
		r.process = s.start(o.env, s.regiond, args...)
		r.http, r.admin, r.grpc = addrs[i][0], addrs[i][1], grpc
	}
	for _, r := range regions {
		awaitOK("http://" + r.admin + "/readyz")
		eventually(func() error {
			_, body, err := ask(r.http, checkPath, bodies("first", global, 1, 1)[0]) //nolint:bodyclose // ask closes it
			if err == nil && !bytes.Contains(body, []byte(`"mode":"global"`)) {
				err = fmt.Errorf("%s answers %s", r.name, body)
			}
			return err
		})
	}
	return regions
}

// awaitOK waits until a URL answers 200.
func awaitOK(url string) {
	eventually(func() error {
		res, err := http.Get(url) //nolint:noctx // loopback
		if err != nil {
			return err
		}
		defer res.Body.Close()
		if res.StatusCode != http.StatusOK {
			return fmt.Errorf("%s: %s", url, res.Status)
		}
		return nil
	})
}

// bare starts a server that gives regiond's answers; see bare.go.
func (s *stage) bare(r *region) *process {
	take := func(k kind) bareAnswer {
		res, body, err := ask(r.http, checkPath, bodies("first", k, 1, 1)[0]) //nolint:bodyclose // ask closes it
		check(err)
		res.Header.Del("Date")
		res.Header.Del("Content-Length")
		return bareAnswer{Status: res.StatusCode, Header: res.Header, Body: string(body)}
	}
	take(narrow)
	answers := map[string]bareAnswer{"/allowed": take(wide), "/denied": take(narrow)}
	if answers["/allowed"].Status != http.StatusOK || answers["/denied"].Status != http.StatusTooManyRequests {
		check(fmt.Errorf("the first answers are %+v", answers))
	}
	naive, naiveSecond, skip := answers["/allowed"], answers["/allowed"], answers["/allowed"]
	naive.Naive, naiveSecond.Naive, skip.Skip = time.Minute, time.Second, true
	answers["/naive"], answers["/naive-second"], answers["/skip"] = naive, naiveSecond, skip
	addr := ports.Addr(s)
	config := must(json.Marshal(bareServer{Addr: addr, Redis: r.redis.http, Answers: answers}))
	p := s.start([]string{bareEnv + "=" + string(config)}, must(os.Executable()))
	p.http, p.admin = addr, addr
	awaitOK("http://" + addr + "/readyz")
	return p
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

// cpu is the processor time that the process has used, in µs; 0 for no process.
func (p *process) cpu() float64 {
	if p == nil {
		return 0
	}
	const schedClock = 2 // CPUCLOCK_SCHED of the kernel's clock ids
	var t unix.Timespec
	check(unix.ClockGettime(int32(^p.pid)<<3|schedClock, &t))
	return float64(t.Nano()) / 1e3
}
