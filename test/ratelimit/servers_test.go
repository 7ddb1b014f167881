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
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	ratelimit "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"github.com/envoyproxy/ratelimit/src/limiter"
	"github.com/goccy/go-yaml"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/regiond/regiond/test/gateway"
	"github.com/regiond/regiond/test/redisserver"
)

// sides has both servers on one Redis.
type sides struct {
	theirs, ours *server
	client       string // the path of their client
	examples     string // the folder of their files
}

const (
	randomDomains = 30
	attempts      = 3 // at a test that must begin and end within one minute
)

// TestServers runs their server and ours on one Redis, with the same files.
func TestServers(t *testing.T) {
	t.Parallel()
	dir, examples := t.TempDir(), module(t)
	install(t, dir, "service_cmd", "client_cmd")
	ours := gateway.Build(t, "../..")
	var all []domain
	add := func(name, file, settings string) { all = append(all, domain{name, file, settings}) }
	example, err := os.ReadFile(filepath.Join(examples, "examples/ratelimit/config/example.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	add("rl", string(example), "")
	for i := range attempts {
		add(fmt.Sprint("rl", i), strings.Replace(string(example), "domain: rl\n", fmt.Sprintf("domain: rl%d\n", i), 1), "")
	}
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
		for name, settings := range map[string]string{"always": ", charge: always", "weighted": ""} {
			name = fmt.Sprint(name, i)
			add(name, strings.Replace(random[i], "domain: d\n", "domain: "+name+"\n", 1), settings)
		}
	}
	add("quota", quotaFile, ", charge: always")
	add("repeated", repeatedFile, ", charge: always, dynamic_metadata: true")
	redis := redisserver.Start(t, redisserver.Options{}).Addr()
	s := &sides{
		theirs: startTheirs(t, filepath.Join(dir, "service_cmd"), redis, all), ours: startOurs(t, ours, redis, all),
		client: filepath.Join(dir, "client_cmd"), examples: examples,
	}
	t.Run("Client", s.testClient)
	t.Run("Examples", s.testExamples)
	t.Run("Quota", s.testQuota)
	t.Run("Metadata", s.testMetadata)
	for i, file := range random {
		t.Run(fmt.Sprint("Always", i), func(t *testing.T) { s.testAlways(t, fmt.Sprint("always", i), file, seed+i) })
		t.Run(fmt.Sprint("Weighted", i), func(t *testing.T) { s.testWeighted(t, fmt.Sprint("weighted", i), file, seed+i) })
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

// envoy is what matters of an Envoy's configuration: the rate limits of the routes.
type envoy struct {
	StaticResources struct {
		Listeners []struct {
			FilterChains []struct {
				Filters []struct {
					TypedConfig struct {
						RouteConfig struct {
							VirtualHosts []struct {
								Routes []route `yaml:"routes"`
							} `yaml:"virtual_hosts"`
						} `yaml:"route_config"`
					} `yaml:"typed_config"`
				} `yaml:"filters"`
			} `yaml:"filter_chains"`
		} `yaml:"listeners"`
	} `yaml:"static_resources"`
}

type route struct {
	Match struct{ Prefix string } `yaml:"match"`
	Route struct {
		Cluster    string
		RateLimits []struct {
			Actions []struct {
				SourceCluster      *struct{} `yaml:"source_cluster"`
				DestinationCluster *struct{} `yaml:"destination_cluster"`
				RequestHeaders     *struct {
					HeaderName    string `yaml:"header_name"`
					DescriptorKey string `yaml:"descriptor_key"`
				} `yaml:"request_headers"`
			}
		} `yaml:"rate_limits"`
	} `yaml:"route"`
}

// descriptors are what Envoy sends for a request with these headers: an action without its header takes its descriptor away.
func (r *route) descriptors(headers map[string]string) (all []*common.RateLimitDescriptor) {
	for _, l := range r.Route.RateLimits {
		d := &common.RateLimitDescriptor{}
		for _, a := range l.Actions {
			key, value, ok := "source_cluster", "proxy", a.SourceCluster != nil // their docker-compose file calls this Envoy so
			switch {
			case a.DestinationCluster != nil:
				key, value, ok = "destination_cluster", r.Route.Cluster, true
			case a.RequestHeaders != nil:
				key = a.RequestHeaders.DescriptorKey
				value, ok = headers[a.RequestHeaders.HeaderName]
			}
			if !ok {
				d = nil
				break
			}
			d.Entries = append(d.Entries, &common.RateLimitDescriptor_Entry{Key: key, Value: value})
		}
		if d != nil {
			all = append(all, d)
		}
	}
	return all
}

var (
	curl   = regexp.MustCompile(`curl .*http://envoy-proxy:8888(/\w+)`)
	header = regexp.MustCompile(`-H "(\w+): (\S+)"`)
)

// testExamples sends what their example's Envoy would, for the requests of their integration tests: both servers answer
// alike, and as the scripts expect.
func (s *sides) testExamples(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(s.examples, "examples/envoy/proxy.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var config envoy
	if err := yaml.Unmarshal(text, &config); err != nil {
		t.Fatal(err)
	}
	routes := config.StaticResources.Listeners[0].FilterChains[0].Filters[0].TypedConfig.RouteConfig.VirtualHosts[0].Routes
	scripts, err := filepath.Glob(filepath.Join(s.examples, "integration-test/scripts/*.sh"))
	if err != nil || len(scripts) < 5 {
		t.Fatal(scripts, err)
	}
	for i := range attempts {
		var wrong []string
		from, requests := time.Now().Truncate(time.Minute), 0
		for _, script := range scripts {
			text, err := os.ReadFile(script)
			if err != nil {
				t.Fatal(err)
			}
			last := ratelimit.RateLimitResponse_UNKNOWN
			for line := range strings.Lines(string(text)) {
				if strings.HasPrefix(line, "assert_") && (last == ratelimit.RateLimitResponse_OK) != strings.HasPrefix(line, "assert_ok") {
					wrong = append(wrong, fmt.Sprintf("%s, request %d: %v, want %s", filepath.Base(script), requests, last, line))
				}
				found := curl.FindStringSubmatch(line)
				if found == nil {
					continue
				}
				headers := map[string]string{}
				for _, h := range header.FindAllStringSubmatch(line, -1) {
					headers[h[1]] = h[2]
				}
				at := slices.IndexFunc(routes, func(r route) bool { return strings.HasPrefix(found[1], r.Match.Prefix) })
				r := &ratelimit.RateLimitRequest{Domain: fmt.Sprint("rl", i), Descriptors: routes[at].descriptors(headers)}
				theirs, ours := s.theirs.ask(t, r).GetOverallCode(), s.ours.ask(t, r).GetOverallCode()
				if theirs != ours {
					wrong = append(wrong, fmt.Sprintf("%s, request %d, %v: they say %v, we say %v", filepath.Base(script), requests, r, theirs, ours))
				}
				last = ours
				requests++
			}
		}
		switch {
		case !time.Now().Truncate(time.Minute).Equal(from): // they began anew with the minute
			continue
		case len(wrong) > 0 || requests < 37:
			t.Errorf("%d requests:\n%s", requests, strings.Join(wrong, "\n"))
		}
		return
	}
	t.Errorf("none of %d attempts fitted into a minute", attempts)
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

// counted is a descriptor of a request that a limit counts: which, under which key, and for how much.
type counted struct {
	key    string
	limit  uint64
	cost   uint64
	shadow bool
	report bool // it has a cost of its own
	over   bool
}

// weighted answers as coming-from.md says of `charge: weighted`, by their matching: what is used under each key.
type weighted map[string]uint64

// answer is the overall code, and which of the descriptors that a limit counts are over it.
func (w weighted) answer(t *testing.T, p *pair, q *ratelimit.RateLimitRequest) (refused bool, over []bool) {
	t.Helper()
	cells := make([]*counted, len(q.GetDescriptors()))
	replaced := map[string]bool{}
	for _, d := range q.GetDescriptors() {
		if l := p.theirs.GetLimit(t.Context(), "d", d); l != nil {
			for _, name := range l.Replaces {
				replaced[name] = true
			}
		}
	}
	var parts [][]*counted // those that are checked together, and each in shadow
	var reports []*counted
	for i, d := range q.GetDescriptors() {
		l := p.theirs.GetLimit(t.Context(), "d", d)
		if l == nil || l.Unlimited || l.Name != "" && replaced[l.Name] {
			continue
		}
		c := &counted{
			key: p.keys.GenerateCacheKey("d", d, l, 0).Key, limit: uint64(l.Limit.GetRequestsPerUnit()),
			cost: uint64(max(1, q.GetHitsAddend())), shadow: l.ShadowMode, report: d.GetHitsAddend() != nil,
		}
		if c.report {
			c.cost = d.GetHitsAddend().GetValue()
		}
		cells[i] = c
		c.over = w[c.key]+c.cost > c.limit
		refused = refused || c.over && !c.shadow && (c.report || c.cost > c.limit) // before anything else is charged
		part := slices.IndexFunc(parts, func(o []*counted) bool { return !o[0].shadow })
		switch {
		case c.report:
			reports = append(reports, c)
		case part < 0 || c.shadow:
			parts = append(parts, []*counted{c})
		default:
			parts[part] = append(parts[part], c)
		}
	}
	for _, c := range reports {
		w[c.key] += c.cost
	}
	before := refused
	for _, part := range parts {
		denied := slices.ContainsFunc(part, func(c *counted) bool { return c.over })
		refused = refused || denied && !part[0].shadow
		for _, c := range part {
			if !denied && (c.shadow || !before) {
				w[c.key] += c.cost
			}
		}
	}
	over = make([]bool, len(cells))
	for i, c := range cells {
		over[i] = c != nil && c.over && !c.shadow
	}
	return refused, over
}

// testWeighted: by default both servers answer alike until the first refusal. After it ours goes on as the model does:
// refused requests charge nothing but what has a cost of its own.
func (s *sides) testWeighted(t *testing.T, name, file string, seed int) {
	r := rand.New(rand.NewPCG(uint64(seed), 2)) //nolint:gosec // repeatable
	p, model, refusals := newPair(t, file), weighted{}, 0
	pool := p.pool(t, seed)
	if len(pool) == 0 {
		return
	}
	for i := range 80 {
		q := &ratelimit.RateLimitRequest{Domain: name, HitsAddend: uint32(max(0, r.IntN(6)-3))} //nolint:gosec // at most 2
		keys := map[string]bool{}
		for range 1 + r.IntN(3) {
			d := &common.RateLimitDescriptor{Entries: pool[r.IntN(len(pool))].GetEntries()}
			key := d.String()
			if l := p.theirs.GetLimit(t.Context(), "d", d); !l.Unlimited {
				key = p.keys.GenerateCacheKey("d", d, l, 0).Key
			}
			if keys[key] {
				continue
			}
			if keys[key] = true; r.IntN(10) == 0 {
				d.HitsAddend = wrapperspb.UInt64(uint64(1 + r.IntN(2)))
			}
			q.Descriptors = append(q.Descriptors, d)
		}
		ours := s.ours.ask(t, q)
		refused, over := model.answer(t, p, q)
		wrong := refused != (ours.GetOverallCode() == ratelimit.RateLimitResponse_OVER_LIMIT)
		if why := ours.GetDynamicMetadata().AsMap(); why["basis"] != "cached" { // a remembered denial shows what others had left then
			for n, status := range ours.GetStatuses() {
				wrong = wrong || over[n] != (status.GetCode() == ratelimit.RateLimitResponse_OVER_LIMIT)
			}
		}
		if wrong {
			t.Fatalf("request %d, %v: refused %t, over %v, we say %s %v, in\n%s", i, q, refused, over, story(ours), ours.GetDynamicMetadata(), file)
		}
		if refusals == 0 {
			if theirs := s.theirs.ask(t, q); story(theirs) != story(ours) && !refused {
				t.Fatalf("request %d, %v:\nthey say %s\nwe say   %s, in\n%s", i, q, story(theirs), story(ours), file)
			} else if theirs.GetOverallCode() != ours.GetOverallCode() {
				t.Fatalf("request %d, %v, the first to be refused:\nthey say %s\nwe say   %s, in\n%s", i, q, story(theirs), story(ours), file)
			}
		}
		if refused {
			refusals++
		}
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
