package daemon

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	auth "github.com/envoyproxy/go-control-plane/envoy/service/auth/v3"
	"go.opentelemetry.io/otel/metric/noop"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/regiond/regiond/quota"
	"github.com/regiond/regiond/test/capture"
)

// sheet is a file in memory, of which Close is counted as nothing.
type sheet struct{ bytes.Buffer }

func (*sheet) Close() error { return nil }

// newTestDenials is a log of region town at the start of 2027, which Run does not run yet.
func newTestDenials(t *testing.T, o DenialLog, file io.WriteCloser, log *slog.Logger) *denialLog {
	t.Helper()
	if o.Rate == 0 {
		o.Rate, o.Sample = 1_000_000, 1
	}
	l, err := newDenialLog(&o, "town", []byte("secret"), file, noop.Meter{}, log)
	if err != nil {
		t.Fatal(err)
	}
	l.now = func() time.Time { return time.Date(2027, 1, 1, 1, 0, 0, 5_000_000, time.FixedZone("east", 3600)) }
	return l
}

// finish writes what waits.
func (l *denialLog) finish(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := l.run(ctx); err != nil {
		t.Error(err)
	}
}

func (l *denialLog) droppedBy() map[string]int64 {
	all := map[string]int64{}
	for reason, n := range l.dropped.All() {
		all[reason] = n
	}
	return all
}

// refusal is the denial by a global limit of 100, of which the region may hold 60.
func refusal(tenant string) *quota.Decision {
	l := &quota.Limit{Name: "sustained", Units: 100, Window: time.Minute, Scope: quota.ScopeGlobal}
	return &quota.Decision{
		ID: quota.DecisionID{0xab, 15: 0xcd}, Tenant: tenant, Policy: "standard", Cost: 3, Mode: quota.ModePartitioned, Reason: quota.ReasonPeerSilent, Basis: quota.BasisEstimate,
		Limits: []quota.LimitState{{Limit: l, Ceiling: 60, Remaining: 2, Denied: true, RetryAfter: 12_000_001 * time.Microsecond}},
	}
}

// TestDenialLines: what a line has of each kind of denial.
func TestDenialLines(t *testing.T) {
	const head, tail = `{"time":"2027-01-01T00:00:00.005Z","id":"ab0000000000000000000000000000cd","region":"town","policy":"standard",`,
		`"cost":3,"mode":"partitioned","reason":"peer_silent","retry_after_ms":12001}`
	hostile := "a\"b\n{\"tenant\":\"c\"}\u2028\xff"
	regional := func(d *quota.Decision) {
		l := *d.Limits[0].Limit
		l.Scope = quota.ScopeRegion
		d.Limits[0].Limit, d.Mode, d.Reason, d.Basis = &l, quota.ModeGlobal, quota.ReasonNone, quota.BasisCached
	}
	for name, row := range map[string]struct {
		shown, tenant string
		change        func(*quota.Decision)
		want          string
	}{
		"raw":      {"raw", "acme", nil, head + `"limit":"sustained","ceiling":60,"used":58,"peers":40,"tenant":"acme",` + tail},
		"hash":     {"hash", "acme", nil, head + `"limit":"sustained","ceiling":60,"used":58,"peers":40,"tenant":"` + tenantText(tenantHash, []byte("secret"))("acme") + `",` + tail},
		"off":      {"off", "acme", nil, head + `"limit":"sustained","ceiling":60,"used":58,"peers":40,` + tail},
		"hostile":  {"raw", hostile, nil, head + `"limit":"sustained","ceiling":60,"used":58,"peers":40,"tenant":"a\"b\n{\"tenant\":\"c\"}\u2028\ufffd",` + tail},
		"regional": {"off", "acme", regional, head + `"limit":"sustained","ceiling":60,"used":58,"peers":0,"cost":3,"mode":"global","retry_after_ms":12001}`},
		"closed": {"off", "acme", func(d *quota.Decision) {
			d.Basis, d.Limits[0].RetryAfter = quota.BasisClosed, time.Second
		}, head + `"cost":3,"mode":"partitioned","reason":"peer_silent","retry_after_ms":1000}`},
		"shed": {"off", "acme", func(d *quota.Decision) {
			d.Basis, d.Reason, d.Mode, d.Limits = quota.BasisShed, quota.ReasonOverloaded, quota.ModeGlobal, nil
		}, head + `"cost":3,"mode":"global","reason":"overloaded","retry_after_ms":1000}`},
	} {
		var file sheet
		l := newTestDenials(t, DenialLog{Tenant: row.shown}, &file, slog.New(slog.DiscardHandler))
		d := refusal(row.tenant)
		if row.change != nil {
			row.change(d)
		}
		l.write(d)
		l.finish(t)
		if file.String() != row.want+"\n" {
			t.Errorf("%s:\n got %s\nwant %s", name, file.String(), row.want)
		}
	}
}

// TestDenialLogBounds: of all denials a proportion is chosen, and of these so many a second are written.
func TestDenialLogBounds(t *testing.T) {
	var file sheet
	l := newTestDenials(t, DenialLog{Tenant: "off", Sample: 0.25, Rate: 3}, &file, slog.New(slog.DiscardHandler))
	now, drawn := l.now(), 0
	l.now = func() time.Time { return now }
	l.random = func() float64 { drawn++; return float64(drawn%8) / 8 } // 0 and 1/8 of eight are chosen
	for range 40 {
		l.write(refusal("acme"))
	}
	if got := l.droppedBy(); got[droppedRate] != 10-3 || got[droppedQueue] != 0 {
		t.Errorf("dropped %v, want 7 of 10 for their rate", got)
	}
	now = now.Add(time.Second)
	for range 40 {
		l.write(refusal("acme"))
	}
	l.finish(t)
	if lines := strings.Count(file.String(), "\n"); lines != 6 || l.droppedBy()[droppedRate] != 14 || drawn != 80 {
		t.Errorf("%d lines in two seconds, dropped %v of %d", lines, l.droppedBy(), drawn)
	}
}

// TestDenialLogNobodyReads: a reader that stands still delays nobody, and what it lacks is counted.
func TestDenialLogNobodyReads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, w := io.Pipe()
		l := newTestDenials(t, DenialLog{Tenant: "off"}, w, slog.New(slog.DiscardHandler))
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- l.run(ctx) }()
		began := time.Now()
		l.write(refusal("acme"))
		synctest.Wait() // it is with the reader
		for range queuedLines + 100 {
			l.write(refusal("acme"))
		}
		if got := l.droppedBy(); time.Since(began) != 0 || got[droppedQueue] != 100 {
			t.Errorf("after %v %v are dropped, want 100 at once", time.Since(began), got)
		}
		cancel()
		if err := <-ended; err != nil || time.Since(began) != closeTimeout {
			t.Errorf("it ends after %v: %v", time.Since(began), err)
		}
		_ = r.Close()
	})
}

// crowded is a disk that takes a part of some lines, and none of others.
type crowded struct {
	sheet
	room []int // of the next writes; without any all of it
}

func (c *crowded) Write(b []byte) (int, error) {
	if len(c.room) == 0 {
		return c.sheet.Write(b)
	}
	n := min(c.room[0], len(b))
	c.room = c.room[1:]
	_, _ = c.sheet.Write(b[:n])
	return n, errors.New("no space left on device")
}

// TestDenialLogFullDisk: errors are logged once and counted, and no line is joined to a part of another.
func TestDenialLogFullDisk(t *testing.T) {
	said := &capture.Log{}
	file := &crowded{room: []int{0, 20, 0, 1, 30, math.MaxInt, 0}}
	l := newTestDenials(t, DenialLog{Tenant: "raw"}, file, slog.New(slog.NewJSONHandler(said, nil)))
	for i := range 9 {
		l.write(refusal(fmt.Sprintf("t%d", i)))
	}
	l.finish(t)
	var tenants []string
	for line := range strings.Lines(file.String()) {
		var d denialLineRead
		if json.Unmarshal([]byte(line), &d) == nil {
			tenants = append(tenants, d.Tenant)
		}
	}
	if fmt.Sprint(tenants) != "[t5 t7 t8]" || l.droppedBy()[droppedFailed] != 7 || len(said.Lines("the denial log cannot be written, which is logged once; see regiond_denial_log_dropped_total")) != 1 {
		t.Errorf("whole lines of %v, dropped %v, in the log:\n%s\n%s", tenants, l.droppedBy(), said, file)
	}
}

// TestDenialLogTornFile: the first line is not joined to a part of one that an earlier process left, and a whole
// last line has no empty one after it.
func TestDenialLogTornFile(t *testing.T) {
	for before, want := range map[string]string{"": "", `{"time":"20`: "{\"time\":\"20\n", "{}\n": "{}\n"} {
		o := DenialLog{Path: filepath.Join(t.TempDir(), "denials"), Tenant: "raw", Sample: 1, Rate: 1}
		write(t, o.Path, before)
		l, err := openDenialLog(&o, "town", nil, noop.Meter{}, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		l.write(refusal("acme"))
		l.finish(t)
		if err := l.close(); err != nil {
			t.Error(err)
		}
		text, err := os.ReadFile(o.Path)
		if err != nil {
			t.Fatal(err)
		}
		line, whole := strings.CutPrefix(string(text), want)
		var d denialLineRead
		if err := json.Unmarshal([]byte(line), &d); !whole || err != nil || d.Tenant != "acme" {
			t.Errorf("after %q it has %q: %v", before, text, err)
		}
	}
}

// denialLineRead is what tests read of a line.
type denialLineRead struct{ ID, Policy, Limit, Tenant string }

// TestDenialLog: each denial on each interface is a line with the id of its answer; nothing else is.
func TestDenialLog(t *testing.T) {
	file := filepath.Join(t.TempDir(), "denials")
	p := start(t, withDomains(t, t.TempDir(), inMemory(), map[string]string{"edge": ""}), "--grpc", "127.0.0.1:0", "--denial-log", file, "--denial-log-tenant", "raw")
	var want []denialLineRead
	field := func(body, name string) string {
		_, after, _ := strings.Cut(body, `"`+name+`":"`)
		text, _, _ := strings.Cut(after, `"`)
		return text
	}
	for i := range 7 { // of five an hour; the last is remembered
		a := p.check(t, "acme")
		if a.status == http.StatusTooManyRequests {
			want = append(want, denialLineRead{field(a.body, "id"), "standard", "hourly", "acme"})
		}
		if p.check(t, "watched"); (a.status == http.StatusOK) != (i < 5) {
			t.Fatalf("check %d: %d", i, a.status)
		}
	}
	a := p.ask(t, http.MethodPost, "/v1/check:batch", `{"checks":[{"tenant":"other"},{"tenant":"acme"}]}`)
	want = append(want, denialLineRead{field(a.body[strings.LastIndex(a.body, `"allowed"`):], "id"), "standard", "hourly", "acme"})
	a = p.ask(t, http.MethodGet, "/v1/authz/x", "", "X-Tenant: acme")
	want = append(want, denialLineRead{field(a.body, "id"), "standard", "hourly", "acme"})
	p.ask(t, http.MethodGet, "/v1/usage/acme", "").is(t, http.StatusOK)

	g := p.gateway(t, nil)
	for range 4 {
		a, err := g.ask(t, "edge", "u", "")
		if err != nil {
			t.Fatal(err)
		}
		if m := a.GetDynamicMetadata().GetFields(); a.GetOverallCode().String() == "OVER_LIMIT" {
			want = append(want, denialLineRead{m["id"].GetStringValue(), "rls-edge", "user", "u"})
		}
	}
	c, err := grpc.NewClient(p.daemon.GRPCAddr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	answer, err := auth.NewAuthorizationClient(c).Check(t.Context(), &auth.CheckRequest{Attributes: &auth.AttributeContext{
		Request:           &auth.AttributeContext_Request{Http: &auth.AttributeContext_HttpRequest{Method: "GET", Path: "/"}},
		ContextExtensions: map[string]string{"tenant": "acme"},
	}})
	if err != nil {
		t.Fatal(err)
	}
	want = append(want, denialLineRead{answer.GetDynamicMetadata().GetFields()["id"].GetStringValue(), "standard", "hourly", "acme"})
	p.stop() // all is written then

	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var got []denialLineRead
	for line := range strings.Lines(string(text)) {
		var d denialLineRead
		if err := json.Unmarshal([]byte(line), &d); err != nil {
			t.Fatalf("%v: %s", err, line)
		}
		got = append(got, d)
	}
	if len(want) != 6 || fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("the log has\n%v, denied were\n%v\n%s", got, want, text)
	}
	for _, d := range got {
		if len(d.ID) != 32 {
			t.Errorf("id %q", d.ID)
		}
	}
}

// TestDenialLogMistakes: a log that cannot be is refused at the start.
func TestDenialLogMistakes(t *testing.T) {
	for flag, want := range map[string]string{
		"--denial-log-tenant=name": "--denial-log-tenant is off, hash or raw",
		"--denial-log-sample=1.5":  "--denial-log-sample is between 0 and 1",
		"--denial-log-sample=NaN":  "--denial-log-sample is between 0 and 1",
		"--denial-log-rate=0":      "--denial-log-rate is at least 1",
	} {
		if _, err := testOptions([]string{"--denial-log", "-", flag}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", flag, err)
		}
	}
	o := DenialLog{Path: filepath.Join(t.TempDir(), "absent", "denials")}
	if _, err := openDenialLog(&o, "town", nil, noop.Meter{}, slog.New(slog.DiscardHandler)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a folder that is not there: %v", err)
	}
	o.Path = filepath.Join(t.TempDir(), "pipe")
	if err := unix.Mkfifo(o.Path, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := openDenialLog(&o, "town", nil, noop.Meter{}, slog.New(slog.DiscardHandler)); err == nil || !strings.Contains(err.Error(), "start its reader first") {
		t.Errorf("a pipe that nobody reads: %v", err)
	}
}
