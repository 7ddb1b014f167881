//go:build linux

package main

import (
	"fmt"
	"net"
	"os"
	"path/filepath"

	"github.com/regiond/regiond/test/ports"
)

// envoyPolicy is what envoyproxy/ratelimit enforces: a limit of each tenant that nobody comes near.
const envoyPolicy = `domain: bench
descriptors:
  - {key: tenant, rate_limit: {unit: minute, requests_per_unit: 100000000}}
`

const envoyAllowed = `"overallCode":"OK"`

// envoyRatelimit returns a scenario: checks beside envoyproxy/ratelimit's /json on the same Redis.
func envoyRatelimit(binary string) func(*stage, figures) {
	return func(s *stage, out figures) {
		if binary == "" {
			fmt.Fprintln(os.Stderr, "        skipped: -envoy-ratelimit names no binary of envoyproxy/ratelimit")
			return
		}
		r := s.serve(setup{})[0]
		allowed := s.load("beside envoyproxy/ratelimit", r.process, r.redis, checks("t", wide, tenants), wantAllowed)
		theirs := s.load("envoyproxy/ratelimit", s.envoy(binary, r.redis, envoyPolicy), r.redis, envoyRequests(tenants), envoyAllowed)
		theirs.client.decides, theirs.client.total = []byte(envoyAllowed), tally{} // of its first millisecond
		alternate(rounds, saturated, turnFor, theirs, allowed)
		out["envoy-ratio"] = allowed.ratio(theirs, rate)
		out["envoy-cpu-ratio"] = allowed.ratio(theirs, (*turn).total)
		out["envoy-rate"] = theirs.median(rate)
	}
}

// envoyRequests are requests for so many tenants, one each.
func envoyRequests(tenants int) (all [][]byte) {
	for i := range tenants {
		body := fmt.Sprintf(`{"domain":"bench","descriptors":[{"entries":[{"key":"tenant","value":"t%07d"}]}]}`, i)
		all = append(all, post("/json", body))
	}
	return all
}

// envoy starts envoyproxy/ratelimit with a file, and settings in its environment.
func (s *stage) envoy(binary string, redis *process, policy string, settings ...string) *process {
	folder := filepath.Join(s.TempDir(), "ratelimit", "config")
	check(os.MkdirAll(folder, 0o700))
	check(os.WriteFile(filepath.Join(folder, "bench.yaml"), []byte(policy), 0o600))
	// With statistics but no statsd it would log the time of each call.
	env := []string{
		"RUNTIME_ROOT=" + filepath.Dir(filepath.Dir(folder)), "RUNTIME_SUBDIRECTORY=ratelimit", "RUNTIME_WATCH_ROOT=false",
		"REDIS_SOCKET_TYPE=tcp", "REDIS_URL=" + redis.http, "LOG_LEVEL=warn", "DISABLE_STATS=true",
	}
	env = append(env, settings...)
	addrs := map[string]string{}
	for _, name := range []string{"", "GRPC_", "DEBUG_"} {
		listens := ports.Addr(s)
		host, port, err := net.SplitHostPort(listens)
		check(err)
		env = append(env, name+"HOST="+host, name+"PORT="+port)
		addrs[name] = listens
	}
	p := s.start(env, binary)
	p.http, p.grpc = addrs[""], addrs["GRPC_"]
	awaitOK("http://" + p.http + "/healthcheck")
	return p
}
