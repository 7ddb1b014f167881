package telemetry

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.opentelemetry.io/otel/metric/noop"
	"golang.org/x/sys/unix"

	"github.com/regiond/regiond/quota"
	"github.com/regiond/regiond/test/capture"
)

// sheet is a file in memory, of which Close is counted as nothing.
type sheet struct{ bytes.Buffer }

func (*sheet) Close() error { return nil }

// newTestDenials is a log of region town at the start of 2027, which Run does not run yet.
func newTestDenials(t *testing.T, o DenialOptions, file io.WriteCloser, log *slog.Logger) *DenialLog {
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
func (l *DenialLog) finish(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := l.Run(ctx); err != nil {
		t.Error(err)
	}
}

func (l *DenialLog) droppedBy() map[string]int64 {
	all := map[string]int64{}
	for labels, n := range l.dropped.All() {
		all[labels[1]] = n
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
		l := newTestDenials(t, DenialOptions{Tenant: row.shown}, &file, slog.New(slog.DiscardHandler))
		d := refusal(row.tenant)
		if row.change != nil {
			row.change(d)
		}
		l.Write(d)
		l.finish(t)
		if file.String() != row.want+"\n" {
			t.Errorf("%s:\n got %s\nwant %s", name, file.String(), row.want)
		}
	}
}

// TestDenialLogBounds: of all denials a proportion is chosen, and of these so many a second are written.
func TestDenialLogBounds(t *testing.T) {
	var file sheet
	l := newTestDenials(t, DenialOptions{Tenant: "off", Sample: 0.25, Rate: 3}, &file, slog.New(slog.DiscardHandler))
	now, drawn := l.now(), 0
	l.now = func() time.Time { return now }
	l.random = func() float64 { drawn++; return float64(drawn%8) / 8 } // 0 and 1/8 of eight are chosen
	for range 40 {
		l.Write(refusal("acme"))
	}
	if got := l.droppedBy(); got[droppedRate] != 10-3 || got[droppedQueue] != 0 {
		t.Errorf("dropped %v, want 7 of 10 for their rate", got)
	}
	now = now.Add(time.Second)
	for range 40 {
		l.Write(refusal("acme"))
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
		l := newTestDenials(t, DenialOptions{Tenant: "off"}, w, slog.New(slog.DiscardHandler))
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- l.Run(ctx) }()
		began := time.Now()
		l.Write(refusal("acme"))
		synctest.Wait() // it is with the reader
		for range queuedLines + 100 {
			l.Write(refusal("acme"))
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
	l := newTestDenials(t, DenialOptions{Tenant: "raw"}, file, slog.New(slog.NewJSONHandler(said, nil)))
	for i := range 9 {
		l.Write(refusal(fmt.Sprintf("t%d", i)))
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
		o := DenialOptions{Path: filepath.Join(t.TempDir(), "denials"), Tenant: "raw", Sample: 1, Rate: 1}
		if err := os.WriteFile(o.Path, []byte(before), 0o600); err != nil {
			t.Fatal(err)
		}
		l, err := OpenDenialLog(&o, "town", nil, noop.Meter{}, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		l.Write(refusal("acme"))
		l.finish(t)
		if err := l.Close(); err != nil {
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

// TestDenialLogMistakes: a log that cannot be opened is an error.
func TestDenialLogMistakes(t *testing.T) {
	o := DenialOptions{Path: filepath.Join(t.TempDir(), "absent", "denials")}
	if _, err := OpenDenialLog(&o, "town", nil, noop.Meter{}, slog.New(slog.DiscardHandler)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a folder that is not there: %v", err)
	}
	o.Path = filepath.Join(t.TempDir(), "pipe")
	if err := unix.Mkfifo(o.Path, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := OpenDenialLog(&o, "town", nil, noop.Meter{}, slog.New(slog.DiscardHandler)); err == nil || !strings.Contains(err.Error(), "start its reader first") {
		t.Errorf("a pipe that nobody reads: %v", err)
	}
}
