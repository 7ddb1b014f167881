package ratelimit_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	ratelimit "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"github.com/envoyproxy/ratelimit/src/limiter"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/regiond/regiond/test/gateway"
	"github.com/regiond/regiond/test/redisserver"
)

// sides has both servers on one Redis.
type sides struct {
	theirs, ours *server
	client       string // the path of their client
}

const randomDomains = 30

// TestServers runs their server and ours on one Redis, with the same files.
func TestServers(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	install(t, dir, "service_cmd", "client_cmd")
	ours := gateway.Build(t, "../..")
	var all []domain
	add := func(name, file, settings string) { all = append(all, domain{name, file, settings}) }
	example, err := os.ReadFile(filepath.Join(module(t), "examples/ratelimit/config/example.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	add("rl", string(example), "")
	seed := rand.IntN(1 << 30) //nolint:gosec // any will do
	if text, ok := os.LookupEnv("SEED"); ok {
		seed, err = strconv.Atoi(text)
		if err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("SEED=%d repeats this run", seed)
	var random []string
	for i := range randomDomains {
		random = append(random, oneWindow(files.Example(seed+i)))
		name := fmt.Sprint("always", i)
		add(name, strings.Replace(random[i], "domain: d\n", "domain: "+name+"\n", 1), ", charge: always")
	}
	add("quota", quotaFile, ", charge: always")
	add("repeated", repeatedFile, ", charge: always, dynamic_metadata: true")
	redis := redisserver.Start(t, redisserver.Options{}).Addr()
	s := &sides{
		theirs: startTheirs(t, filepath.Join(dir, "service_cmd"), redis, all), ours: startOurs(t, ours, redis, all),
		client: filepath.Join(dir, "client_cmd"),
	}
	t.Run("Client", s.testClient)
	t.Run("Quota", s.testQuota)
	t.Run("Metadata", s.testMetadata)
	for i, file := range random {
		t.Run(fmt.Sprint("Always", i), func(t *testing.T) { s.testAlways(t, fmt.Sprint("always", i), file, seed+i) })
	}
}

// oneWindow is a file without quota mode, whose limits are all of the window that has most of its time left: their windows
// are aligned.
func oneWindow(file string) string {
	unit, left := "", time.Duration(0)
	for name, lasts := range map[string]time.Duration{"week": 7 * 24 * time.Hour, "month": 30 * 24 * time.Hour} {
		if rest := lasts - time.Duration(time.Now().UnixNano())%lasts; rest > left {
			unit, left = name, rest
		}
	}
	return strings.ReplaceAll(regexp.MustCompile(`\{unit: \w+`).ReplaceAllString(file, "{unit: "+unit), "quota_mode: true", "quota_mode: false")
}

// testClient: their client understands our answers.
func (s *sides) testClient(t *testing.T) {
	for i, want := range []string{"OK", "OK", "OK", "OVER_LIMIT"} {
		for _, side := range []*server{s.theirs, s.ours} {
			out, err := exec.CommandContext(t.Context(), s.client, "-dial_string", side.addr, "-domain", "rl",
				"-descriptors", "foo=client,baz=not-so-shady", "-descriptors", "qux=x").CombinedOutput()
			pattern := regexp.MustCompile(`response: overall_code: *` + want + ` .*current_limit:\{requests_per_unit: *3 +unit: *MINUTE\}.*limit_remaining: *4294967295`)
			if err != nil || !pattern.Match(out) {
				t.Errorf("request %d: %v, want %s:\n%s", i, err, want, out)
			}
		}
	}
}

// pool are descriptors for which a file has rules, and how they count.
func (p *pair) pool(t *testing.T, seed int) (all []*common.RateLimitDescriptor) {
	t.Helper()
	for i := 0; i < 400 && len(all) < 8; i++ {
		d := drawn.Example(seed + i)
		if p.theirs.GetLimit(t.Context(), "d", d) != nil {
			all = append(all, d)
		}
	}
	return all
}

func newPair(t *testing.T, file string) *pair {
	t.Helper()
	p := &pair{keys: limiter.NewCacheKeyGenerator("")}
	var err error
	if p.theirs, err = loadTheirs(file); err != nil {
		t.Fatal(err)
	}
	return p
}

// story is what matters of an answer: codes and, for each descriptor, its limit and what is left.
func story(a *ratelimit.RateLimitResponse) string {
	var b bytes.Buffer
	b.WriteString(a.GetOverallCode().String())
	for _, s := range a.GetStatuses() {
		l := s.GetCurrentLimit()
		fmt.Fprintf(&b, " %v/%d of %d %v %q", s.GetCode(), s.GetLimitRemaining(), l.GetRequestsPerUnit(), l.GetUnit(), l.GetName())
	}
	return b.String()
}

// testAlways: with `charge: always` both servers answer all requests of a window alike, refused or not, but for those with a
// cost of 0, which we refuse when nothing is left.
func (s *sides) testAlways(t *testing.T, name, file string, seed int) {
	r := rand.New(rand.NewPCG(uint64(seed), 1)) //nolint:gosec // repeatable
	p := newPair(t, file)
	pool := p.pool(t, seed)
	if len(pool) == 0 {
		return
	}
	for i := range 60 {
		q := &ratelimit.RateLimitRequest{Domain: name, HitsAddend: uint32(max(0, r.IntN(6)-3))} //nolint:gosec // at most 2
		for range 1 + r.IntN(3) {
			d := &common.RateLimitDescriptor{Entries: pool[r.IntN(len(pool))].GetEntries()}
			if r.IntN(10) == 0 {
				d.HitsAddend = wrapperspb.UInt64(uint64(r.IntN(3)))
			}
			q.Descriptors = append(q.Descriptors, d)
		}
		theirs, ours := s.theirs.ask(t, q), s.ours.ask(t, q)
		p.stricter(t, theirs, q)
		if story(theirs) != story(ours) {
			t.Fatalf("request %d, %v:\nthey say %s\nwe say   %s, in\n%s", i, q, story(theirs), story(ours), file)
		}
	}
}

// stricter makes of their answer ours: what costs 0 is over when nothing is left.
func (p *pair) stricter(t *testing.T, a *ratelimit.RateLimitResponse, q *ratelimit.RateLimitRequest) {
	t.Helper()
	for i, d := range q.GetDescriptors() {
		s := a.GetStatuses()[i]
		if d.GetHitsAddend() == nil || d.GetHitsAddend().GetValue() > 0 || s.GetCurrentLimit() == nil || s.GetLimitRemaining() > 0 ||
			p.theirs.GetLimit(t.Context(), "d", d).ShadowMode {
			continue
		}
		s.Code, a.OverallCode = ratelimit.RateLimitResponse_OVER_LIMIT, ratelimit.RateLimitResponse_OVER_LIMIT
	}
}

const quotaFile = `domain: quota
descriptors:
  - {key: one, quota_mode: true, rate_limit: {unit: month, requests_per_unit: 1}}
  - {key: two, quota_mode: true, rate_limit: {unit: month, requests_per_unit: 2}}
`

// testQuota: their version never refuses by a limit in quota mode. Newer ones do, and so do we, when all are used up.
func (s *sides) testQuota(t *testing.T) {
	q := &ratelimit.RateLimitRequest{Domain: "quota"}
	for _, key := range []string{"one", "two"} {
		q.Descriptors = append(q.Descriptors, &common.RateLimitDescriptor{Entries: []*common.RateLimitDescriptor_Entry{{Key: key, Value: "x"}}})
	}
	for i, refused := range []bool{false, false, true} {
		theirs, ours := s.theirs.ask(t, q), s.ours.ask(t, q)
		if story(theirs) != story(ours) && !refused || theirs.GetOverallCode() != ratelimit.RateLimitResponse_OK ||
			refused != (ours.GetOverallCode() == ratelimit.RateLimitResponse_OVER_LIMIT) {
			t.Errorf("request %d:\nthey say %s\nwe say   %s", i, story(theirs), story(ours))
		}
	}
}

const repeatedFile = `domain: repeated
descriptors:
  - {key: quota, quota_mode: true, rate_limit: {unit: month, requests_per_unit: 5, name: q}}
  - {key: free, quota_mode: true, rate_limit: {unlimited: true}}
  - {key: shadow, quota_mode: true, shadow_mode: true, rate_limit: {unit: month, requests_per_unit: 5}}
  - {key: instead, rate_limit: {unit: month, requests_per_unit: 5, name: i, replaces: [{name: q}]}}
`

// testMetadata: what both repeat of a request, and say of its quotas, is the same.
func (s *sides) testMetadata(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 3)) //nolint:gosec // repeatable
	quotas := 0
	for range 200 {
		q := &ratelimit.RateLimitRequest{Domain: "repeated", HitsAddend: r.Uint32N(3)}
		for range 1 + r.IntN(3) {
			key := []string{"quota", "free", "shadow", "instead", "none"}[r.IntN(5)]
			value := []string{"", "x", "y=z"}[r.IntN(3)]
			d := &common.RateLimitDescriptor{Entries: []*common.RateLimitDescriptor_Entry{{Key: key, Value: value}}}
			if r.IntN(5) == 0 {
				d.HitsAddend = wrapperspb.UInt64(uint64(1 + r.IntN(2)))
			}
			q.Descriptors = append(q.Descriptors, d)
		}
		theirs, ours := s.theirs.ask(t, q).GetDynamicMetadata().AsMap(), s.ours.ask(t, q).GetDynamicMetadata().AsMap()
		if theirs["quotaModeViolations"] != nil {
			quotas++
		}
		for _, name := range []string{"domain", "descriptors", "hitsAddend", "quotaModeEnabled", "quotaModeViolations"} {
			if !reflect.DeepEqual(theirs[name], ours[name]) {
				t.Errorf("%v: %s is %v there, %v here", q, name, theirs[name], ours[name])
			}
		}
	}
	if quotas < 10 {
		t.Errorf("only %d requests exceeded a quota", quotas)
	}
}
