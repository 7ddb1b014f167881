package overrides_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"pgregory.net/rapid"

	"github.com/regiond/regiond/limiter/store"
	"github.com/regiond/regiond/quota"
	"github.com/regiond/regiond/region"
	"github.com/regiond/regiond/region/overrides"
	"github.com/regiond/regiond/test/redisserver"
)

const file = `
regions: [{name: eu, http: "127.0.0.1:0"}]
policies:
  - {name: standard, limits: [{name: burst, units: 20, per: 1s}, {name: sustained, units: 600, per: 1m}, {name: shaped, units: 10, per: 1s, burst: 40, algorithm: gcra}]}
  - {name: large, limits: [{name: daily, units: 90000, per: 24h}]}
  - {name: bounded, limits: [{name: strict, units: 100, per: 1m, scope: global, max_overshoot: 0%}]}
tenants: {acme: {policy: standard}, vast: {policy: large}, held: {policy: bounded}}
rls: {domains: {edge: {file: x}}}
`

// domain is of a file that gives descriptors limits of these names.
type domain struct{ policy quota.Policy }

func (d *domain) Policy() *quota.Policy { return &d.policy }

func topology(t testing.TB, text string) *region.Topology {
	t.Helper()
	top, _, err := region.Parse("topology.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	for i := range top.RLS.Domains {
		top.RLS.Domains[i].Rules = &domain{quota.Policy{Limits: []quota.Limit{{Name: "user_id", Units: 5, Window: time.Minute}, {Name: "burst", Units: 5, Window: time.Minute}}}}
	}
	return top
}

// eval is as redisstore's, on one server.
func eval(c *redis.Client) overrides.Eval {
	return func(ctx context.Context, script, key string, args ...any) (any, error) {
		return c.Eval(ctx, script, []string{key}, args...).Result()
	}
}

// process is one of a region. Its clock stands still until it is moved.
type process struct {
	*overrides.Overlay
	nowUS atomic.Int64
	log   bytes.Buffer
}

func newProcess(t testing.TB, ask overrides.Eval) *process {
	t.Helper()
	return newProcessOf(t, "eu", ask)
}

func newProcessOf(t testing.TB, name string, ask overrides.Eval) *process {
	t.Helper()
	p, top := &process{}, topology(t, file)
	p.nowUS.Store(1_700_000_000_000_000)
	var err error
	if p.Overlay, err = overrides.New(overrides.Options{
		Region: name, Eval: ask, TimeUS: p.nowUS.Load, Now: time.Now, Topology: func() *region.Topology { return top },
		Logger: slog.New(slog.NewTextHandler(&p.log, nil)),
	}); err != nil {
		t.Fatal(err)
	}
	return p
}

// run starts Run, which ends with the test.
func (p *process) run(t testing.TB) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = p.Run(ctx) // it returns nil
	}()
	t.Cleanup(func() {
		cancel()
		<-done
	})
}

func units(tenant string, limits ...any) quota.Edit {
	o := quota.Override{Tenant: tenant, By: "ops", Reason: "test"}
	for i := 0; i < len(limits); i += 2 {
		o.Limits = append(o.Limits, quota.OverrideLimit{Name: limits[i].(string), Units: int64(limits[i+1].(int))})
	}
	o.Sort()
	return quota.Edit{Override: o}
}

func edit(t testing.TB, p *process, e quota.Edit) quota.Edited {
	t.Helper()
	r, err := p.Edit(t.Context(), e)
	if err != nil {
		t.Fatalf("edit %+v: %v", e, err)
	}
	return r
}

// of is what a process uses of a tenant.
func (p *process) of(t testing.TB, tenant string) string {
	t.Helper()
	o, err := p.Of(t.Context(), tenant)
	if err != nil {
		t.Fatal(err)
	}
	return o.Describe()
}

// eventually waits until a process has something.
func (p *process) eventually(t testing.TB, tenant, want string, within time.Duration) {
	t.Helper()
	for end := time.Now().Add(within); ; time.Sleep(10 * time.Millisecond) {
		if got := p.of(t, tenant); got == want {
			return
		} else if time.Now().After(end) {
			t.Fatalf("%s has %q after %v, want %q", tenant, got, within, want)
		}
	}
}

func TestRules(t *testing.T) {
	p := newProcess(t, nil)
	past := units("acme", "burst", 1)
	past.Override.ExpiresUS = p.nowUS.Load()
	nothing, gone, named := units("acme"), units("acme"), units("new")
	gone.Override.Policy, named.Override.Policy = "gone", "standard"
	long := units("acme", "burst", 1)
	long.Override.Reason = string(bytes.Repeat([]byte("x"), quota.MaxReason+1))
	lines := units("acme", "burst", 1)
	lines.Override.Reason = "two\nlines"
	for _, row := range []struct {
		edit    quota.Edit
		pointer string // of the mistake; "ok" for none
		detail  string
	}{
		{units("acme", "burst", 200), "ok", ""},
		{units("acme", "burst", 0), "ok", ""},
		{units("acme", "daily", 7), "ok", ""}, // of another policy: kept and ignored
		{units("new", "burst", 7), "/policy", "neither lists the tenant nor has a default"},
		{named, "ok", ""},
		{units("acme", "burst", 201), "/limits/burst", "must be at most 200, which is max_override, 10x, of the topology's 20; it is 201"},
		{units("acme", "brust", 7), "/limits/brust", "is a limit of no policy of the topology"},
		{units("acme", "user_id", 7), "/limits/user_id", `is a limit of rate limit domain "edge", and an override changes those of the tenant's policy`},
		{units("vast", "daily", 100_001), "/limits/daily", "takes at most 100000"},
		{units("held", "strict", 1000), "ok", ""}, // it has a bound
		{units("held", "strict", 1001), "/limits/strict", "must be at most 1000"},
		{nothing, "", "changes nothing"},
		{gone, "/policy", `"gone" is not a policy`},
		{past, "/expires_at", "is over: the region's clock says 2023-11-14T22:13:20Z"},
		{long, "/reason", "must be at most 256 bytes"},
		{lines, "/reason", "one line"},
		{units("a b", "burst", 1), "/tenant", "printable ASCII"},
	} {
		_, err := p.Edit(t.Context(), row.edit)
		var bad *quota.Invalid
		if row.pointer == "ok" {
			if err != nil {
				t.Errorf("%+v: %v", row.edit.Override, err)
			}
			continue
		}
		if !errors.As(err, &bad) || !slices.ContainsFunc(bad.Fields, func(f quota.FieldError) bool {
			return f.Pointer == row.pointer && bytes.Contains([]byte(f.Detail), []byte(row.detail))
		}) {
			t.Errorf("%+v: %v, want %s %s", row.edit.Override, err, row.pointer, row.detail)
		}
	}
}

// keepers runs a test with one process without Redis and with one that has some.
func keepers(t *testing.T, test func(t *testing.T, p *process)) {
	t.Run("memory", func(t *testing.T) { test(t, newProcess(t, nil)) })
	t.Run("redis", func(t *testing.T) {
		p := newProcess(t, eval(redisserver.Start(t, redisserver.Options{}).Client()))
		p.run(t)
		for p.listed(t) == nil {
			time.Sleep(time.Millisecond)
		}
		test(t, p)
	})
}

// listed are the tenants of all pages of two; nil while they are loaded.
func (p *process) listed(t testing.TB) []string {
	names := []string{}
	for after := ""; ; {
		all, next, err := p.List(after, 2)
		if errors.Is(err, overrides.ErrLoading) {
			return nil
		}
		for _, o := range all {
			names = append(names, o.Tenant)
		}
		if after = next; next == "" || t.Failed() {
			return names
		}
	}
}

// The conditions, versions and history of one tenant's edits.
func TestEdits(t *testing.T) {
	keepers(t, func(t *testing.T, p *process) {
		e := units("acme", "burst", 40)
		e.IfMatch = "1.2.eu"
		if r := edit(t, p, e); !r.Refused || r.Before != nil {
			t.Errorf("If-Match of none: %+v", r)
		}
		e.IfMatch, e.IfNone = "", true
		first := edit(t, p, e)
		if first.Refused || first.Version.Counter != 1 || p.of(t, "acme") != "burst 40" {
			t.Errorf("the first: %+v, %s", first, p.of(t, "acme"))
		}
		if r := edit(t, p, e); !r.Refused || r.Version != first.Version {
			t.Errorf("If-None-Match: %+v", r)
		}
		if r := edit(t, p, units("acme", "burst", 40)); r.Refused || r.Version != first.Version || r.Before != r.After {
			t.Errorf("what changes nothing: %+v", r)
		}
		e = units("acme", "burst", 50)
		e.IfMatch = first.Version.String()
		second := edit(t, p, e)
		if second.Refused || second.Version.Compare(first.Version) <= 0 {
			t.Errorf("If-Match: %+v", second)
		}
		if r := edit(t, p, e); !r.Refused {
			t.Errorf("If-Match of a former version: %+v", r)
		}
		gone := quota.Edit{Override: quota.Override{Tenant: "acme", By: "ops", Deleted: true}}
		if r := edit(t, p, gone); r.Before == nil || r.After != nil || p.of(t, "acme") != "none" {
			t.Errorf("deleted: %+v, %s", r, p.of(t, "acme"))
		}
		if r := edit(t, p, gone); r.Before != nil || r.Version != (quota.OverrideVersion{}) {
			t.Errorf("deleted twice: %+v", r)
		}
		e.IfMatch, e.IfNone = "", true
		e.Override.ExpiresUS = p.nowUS.Load() + 1
		if r := edit(t, p, e); r.Refused || r.Version.Counter != 4 {
			t.Errorf("again: %+v", r)
		}
		p.nowUS.Add(1)
		if o, err := p.Read(t.Context(), "acme"); o != nil || err != nil || p.of(t, "acme") != "none" {
			t.Errorf("after its end: %+v, %v", o, err)
		}
		if names := p.listed(t); len(names) > 0 {
			t.Errorf("listed after its end: %v", names)
		}
		var got []string
		all, err := p.History(t.Context(), "acme")
		if err != nil {
			t.Fatal(err)
		}
		for _, o := range all {
			got = append(got, fmt.Sprint(o.Version.Counter, " ", o.Describe(), " ", o.Deleted))
		}
		if want := []string{"4 burst 50 false", "3 none true", "2 burst 50 false", "1 burst 40 false"}; !slices.Equal(got, want) {
			t.Errorf("history %q, want %q", got, want)
		}
		for i := range quota.MaxEdits + 5 {
			edit(t, p, units("acme", "burst", i+1))
		}
		if all, err = p.History(t.Context(), "acme"); err != nil || len(all) != quota.MaxEdits+1 || all[0].Describe() != "burst 25" || all[20].Describe() != "burst 5" {
			t.Errorf("history of %d, %v", len(all), err)
		}
	})
}

// All are listed once, and in pages that no edit between them repeats.
func TestList(t *testing.T) {
	keepers(t, func(t *testing.T, p *process) {
		want := []string{}
		for i := range 41 {
			e := units(fmt.Sprint("t", i), "burst", 30)
			e.Override.Policy = "standard"
			edit(t, p, e)
			want = append(want, e.Override.Tenant)
		}
		got := p.listed(t)
		slices.Sort(got)
		slices.Sort(want)
		if !slices.Equal(got, want) {
			t.Errorf("%q, want %q", got, want)
		}
	})
}

// Siblings have an edit within a second, also after their log was lost, and have it again where Redis lost everything.
func TestSiblings(t *testing.T) {
	s := redisserver.Start(t, redisserver.Options{})
	a, b := newProcess(t, eval(s.Client())), newProcess(t, eval(s.Client()))
	edit(t, a, units("acme", "burst", 40)) // before either has loaded
	a.run(t)
	b.run(t)
	b.eventually(t, "acme", "burst 40", 0)
	for i := range 20 {
		edit(t, a, units("acme", "burst", 41+i))
		b.eventually(t, "acme", fmt.Sprint("burst ", 41+i), time.Second)
	}
	s.Client().Del(t.Context(), "rl:overrides:log")
	edit(t, b, units("acme", "burst", 7))
	a.eventually(t, "acme", "burst 7", time.Second)

	s.Client().FlushAll(t.Context())
	e := units("vast", "daily", 7)
	edit(t, b, e)
	a.eventually(t, "vast", "daily 7", time.Second)
	c := newProcess(t, eval(s.Client())) // it has nothing but what Redis has
	for end := time.Now().Add(5 * time.Second); c.of(t, "acme") != "burst 7"; time.Sleep(50 * time.Millisecond) {
		if c = newProcess(t, eval(s.Client())); time.Now().After(end) {
			t.Fatal("redis does not have again what it lost")
		}
	}
	if r := edit(t, c, units("acme", "burst", 8)); r.Version.Counter != 23 {
		t.Errorf("the version after the loss is %v", r.Version)
	}
}

// Until a process has loaded all, a decision reads its tenant's override once, and one that cannot be read is an error.
func TestFirstDecision(t *testing.T) {
	s := redisserver.Start(t, redisserver.Options{})
	edit(t, newProcess(t, eval(s.Client())), units("acme", "burst", 40))
	p := newProcess(t, eval(s.Client()))
	before := s.Calls(t, "hget")
	for range 10 {
		if p.of(t, "acme") != "burst 40" || p.of(t, "other") != "none" {
			t.Error("not what Redis has")
		}
	}
	if n := s.Calls(t, "hget") - before; n != 2 {
		t.Errorf("%d reads for two tenants", n)
	}
	away := errors.New("away")
	p = newProcess(t, func(context.Context, string, string, ...any) (any, error) { return nil, away })
	for range 2 {
		var e *store.Error
		if o, err := p.Of(t.Context(), "acme"); o != nil || !errors.As(err, &e) {
			t.Errorf("%v, %v", o, err)
		}
	}
	if _, _, err := p.List("", 1); !errors.Is(err, overrides.ErrLoading) {
		t.Errorf("listed: %v", err)
	}
}

// What ended is forgotten on both sides after 30 days, and not before.
func TestForgotten(t *testing.T) {
	s := redisserver.Start(t, redisserver.Options{})
	p := newProcess(t, eval(s.Client()))
	edit(t, p, units("acme", "burst", 1))
	edit(t, p, units("vast", "daily", 1))
	p.nowUS.Add(1)
	edit(t, p, quota.Edit{Override: quota.Override{Tenant: "acme", Deleted: true}})
	p.nowUS.Add(quota.OverrideKept.Microseconds())
	later := newProcess(t, eval(s.Client()))
	later.nowUS.Store(p.nowUS.Load())
	overrides.ReadAll(t.Context(), later.Overlay)
	if later.Size() != 2 {
		t.Errorf("%d are known after 30 days", later.Size())
	}
	later.nowUS.Add(1)
	overrides.ReadAll(t.Context(), later.Overlay)
	if n := s.Client().HLen(t.Context(), overrides.KeyOf("acme")).Val(); later.Size() != 1 || n != 0 {
		t.Errorf("%d are known later, %d in redis", later.Size(), n)
	}
}

// A text that was written is read as it was, and any other is refused and never fails.
func TestText(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		o := quota.Override{
			Tenant: rapid.StringMatching(`[a-zA-Z0-9|@=,.*!-]{1,20}`).Draw(t, "tenant"),
			Version: quota.OverrideVersion{
				Counter: rapid.Int64Range(1, 1<<40).Draw(t, "counter"), WallUS: rapid.Int64Range(0, 1<<51).Draw(t, "wall"),
				Region: rapid.StringMatching(`[a-z0-9][a-z0-9_-]{0,9}`).Draw(t, "region"),
			},
			ExpiresUS: rapid.Int64Range(0, 1<<51).Draw(t, "expires"), Deleted: rapid.Bool().Draw(t, "deleted"),
			By: rapid.StringMatching(`[a-zA-Z0-9|@=,.!-]{0,9}`).Draw(t, "by"), Reason: rapid.StringMatching(`[ -~äß]{0,60}`).Draw(t, "reason"),
		}
		if !o.Deleted {
			o.Policy = rapid.StringMatching(`([a-z0-9][a-z0-9_-]{0,9})?`).Draw(t, "policy")
			for _, name := range rapid.SliceOfNDistinct(rapid.StringMatching(`[a-z0-9][a-z0-9_-]{0,9}`), 0, 5, rapid.ID).Draw(t, "names") {
				o.Limits = append(o.Limits, quota.OverrideLimit{Name: name, Units: rapid.Int64Range(0, quota.MaxUnits).Draw(t, "units")})
			}
			o.Sort()
			if rapid.Bool().Draw(t, "enforcement") {
				e := quota.Observe
				o.Enforcement = &e
			}
		}
		text := o.Text()
		got, err := quota.ParseOverride(o.Tenant, text)
		if err != nil {
			t.Fatalf("%q: %v", text, err)
		}
		if !got.SameTerms(&o) || got.Version != o.Version || got.By != o.By || got.Reason != o.Reason || got.Tenant != o.Tenant {
			t.Fatalf("%q became %+v", text, got)
		}
		if packed := overrides.Repack(got); !packed.SameTerms(&o) || packed.Version != o.Version || packed.Tenant != o.Tenant {
			t.Fatalf("%q became %+v in memory", text, packed)
		}
	})
}

func FuzzText(f *testing.F) {
	f.Add("1 3.1795198405260197.eu-west 0 enterprise observe sustained=1200 ops launch of the shop")
	f.Add("1 1.1.a 5 ! * * * ")
	f.Fuzz(func(t *testing.T, text string) {
		o, err := quota.ParseOverride("acme", text)
		if err != nil {
			return
		}
		again, err := quota.ParseOverride("acme", o.Text())
		if err != nil || !again.SameTerms(o) || again.Version != o.Version {
			t.Errorf("%q: %+v became %+v, %v", text, o, again, err)
		}
	})
}

// A reload names the tenants whose override it makes less of than was set, and no other.
func TestIneffective(t *testing.T) {
	p := newProcess(t, nil)
	edit(t, p, units("acme", "burst", 200))
	edit(t, p, units("vast", "daily", 1, "burst", 3)) // its policy has no burst, and another one has
	edit(t, p, quota.Edit{Override: quota.Override{Tenant: "held", Policy: "large", By: "ops"}})
	for _, row := range []struct{ old, changed, want string }{
		{"", "", ""},
		{"units: 20,", "units: 19,", "acme"},
		{"units: 20,", "units: 20, scope: global, max_overshoot: 0%,", ""},
		{"{name: burst, units: 20, per: 1s}, ", "", "acme vast"},
		{"regions:", "max_override: 9x\nregions:", "acme"},
		{"large", "larger", "held"},
	} {
		got := p.Ineffective(topology(t, strings.ReplaceAll(file, row.old, row.changed)), 10)
		slices.Sort(got)
		if strings.Join(got, " ") != row.want {
			t.Errorf("%q in place of %q: %v, want %s", row.changed, row.old, got, row.want)
		}
	}
}
