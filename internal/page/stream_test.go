package page

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/regiond/regiond/test/capture"
	"github.com/regiond/regiond/test/leaks"
)

func TestMain(m *testing.M) { leaks.Main(m) }

// recorded is a Stream whose samples a test takes itself, at times of its own.
type recorded struct {
	*Stream
	t    *testing.T
	next Sample
}

func newRecorded(t *testing.T) *recorded {
	t.Helper()
	r := &recorded{t: t}
	r.Stream = New(func() Sample { return r.next })
	return r
}

func (r *recorded) at(now time.Time) {
	r.t.Helper()
	if err := r.tick(now); err != nil {
		r.t.Fatal(err)
	}
}

// shown is the timeline as the next reader gets it.
func (r *recorded) shown() (h historyEvent, sums map[string][2]int64) {
	r.t.Helper()
	text, err := r.history()
	if err != nil {
		r.t.Fatal(err)
	}
	_, data, _ := strings.Cut(string(text), "data: ")
	if err := json.Unmarshal([]byte(data), &h); err != nil {
		r.t.Fatal(err)
	}
	sums = map[string][2]int64{}
	for _, p := range h.Policies {
		sum := sums[p.Name]
		for i := range p.Allowed {
			sum[0], sum[1] = sum[0]+p.Allowed[i], sum[1]+p.Denied[i]
		}
		sums[p.Name] = sum
	}
	return h, sums
}

// The timeline is what a plain list of all samples adds up to: nothing is lost between steps,
// and after 15 minutes the oldest goes.
func TestTimeline(t *testing.T) {
	r, model := newRecorded(t), map[int64][2]int64{} // allowed and denied by step
	begun := time.Unix(1_700_000_000, 0)
	var all [2]int64
	for n := range int64((Span + 2*time.Minute) / Every) {
		now := begun.Add(time.Duration(n) * Every)
		own := [2]int64{n % 7, n % 3}
		all[0], all[1] = all[0]+own[0], all[1]+own[1]
		step := model[now.Unix()/5]
		model[now.Unix()/5] = [2]int64{step[0] + own[0], step[1] + own[1]}
		r.next.Policies = []Policy{{Name: "p", Allowed: all[0], Denied: all[1], Ratio: float64(n%2) * 1.25}}
		if r.at(now); n%97 != 0 {
			continue
		}
		h, _ := r.shown()
		p := h.Policies[0]
		if want := min(int(now.Sub(begun)/Step)+1, 180); len(p.Allowed) != want {
			t.Fatalf("%d points after %v, want %d", len(p.Allowed), now.Sub(begun), want)
		}
		for i := range p.Allowed {
			at := h.StepMS/5000 - int64(len(p.Allowed)-1-i)
			if got := [2]int64{p.Allowed[i], p.Denied[i]}; got != model[at] {
				t.Fatalf("step %d has %d allowed and denied, want %d", at, got, model[at])
			}
			if i < len(p.Allowed)-1 && (p.Overshoot[i] == nil || *p.Overshoot[i] != 0.25) {
				t.Fatalf("step %d has overshoot %v", at, p.Overshoot[i])
			}
		}
	}
}

func TestChanges(t *testing.T) {
	r, now := newRecorded(t), time.Unix(1_700_000_000, 0)
	_, events, err := r.open()
	if err != nil {
		t.Fatal(err)
	}
	changes := func(mode string) []Change {
		t.Helper()
		now = now.Add(Every)
		r.next.States = []State{{Region: "eu", State: mode, Reason: "why"}}
		r.at(now)
		_, data, _ := strings.Cut(string(<-events), "data: ")
		var e stateEvent
		if err := json.Unmarshal([]byte(data), &e); err != nil {
			t.Fatal(err)
		}
		return e.Events
	}
	if got := changes("global"); len(got) != 0 {
		t.Errorf("nothing changed, and there is %+v", got)
	}
	want := Change{AtMS: now.Add(Every).UnixMilli(), Region: "eu", From: "global", To: "partitioned", Reason: "why"}
	if got := changes("partitioned"); len(got) != 1 || got[0] != want {
		t.Errorf("changes %+v", got)
	}
	for i := range 120 {
		changes(fmt.Sprint("mode ", i))
	}
	if got := changes("mode 119"); len(got) != 50 || got[0].To != "mode 119" {
		t.Errorf("%d changes, the newest %+v", len(got), got[0])
	}
}

// A reader that does not read is dropped within seconds; the others notice nothing.
func TestSlowReaderIsDropped(t *testing.T) {
	r, now := newRecorded(t), time.Unix(1_700_000_000, 0)
	_, slow, _ := r.open()
	_, quick, _ := r.open()
	for n := range 24 {
		r.at(now.Add(time.Duration(n) * Every))
		if event := string(<-quick); !strings.HasPrefix(event, "event: state\n") {
			t.Fatalf("the quick reader got %q", event)
		}
	}
	kept := 0
	for range slow { // it is closed
		kept++
	}
	if kept != backlog {
		t.Errorf("%d events were kept for a reader that did not read", kept)
	}
}

// TestServe: a stream is events of the timeline and of now, as many are open as may be, and Close ends them, so that a shutdown does
// not wait, and lets nobody in. A HEAD has no body and no end to wait for, and takes no place.
func TestServe(t *testing.T) {
	r := newRecorded(t)
	server := httptest.NewServer(r)
	defer server.Close()
	ask := func(method string, status int) (http.Header, io.ReadCloser) {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), method, server.URL, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		res, err := server.Client().Do(req)
		if err != nil || res.StatusCode != status || (status == http.StatusServiceUnavailable) != (res.Header.Get("Retry-After") != "") {
			t.Fatalf("%s: %v %v, want %d", method, res, err, status)
		}
		t.Cleanup(func() { _ = res.Body.Close() })
		return res.Header, res.Body
	}
	if h, _ := ask(http.MethodHead, 200); h.Get("Content-Type") != "text/event-stream" {
		t.Errorf("%v", h)
	}
	var others []chan []byte
	for range MaxReaders - 1 {
		_, events, _ := r.open()
		others = append(others, events)
	}
	_, body := ask(http.MethodGet, 200)
	lines := bufio.NewScanner(body)
	r.at(time.Unix(1_700_000_000, 0))
	for _, want := range []string{"retry: 2000", "event: history", "data: {", "", "event: state", `data: {"at_ms":1700000000000,`} {
		if !lines.Scan() || !strings.HasPrefix(lines.Text(), want) {
			t.Fatalf("it sends %q, want %q", lines.Text(), want)
		}
	}
	ask(http.MethodGet, http.StatusServiceUnavailable)
	r.leave(others[0])
	_, again := ask(http.MethodGet, 200)
	_ = again.Close()
	capture.Eventually(t, func() error { // one that left has no place any more
		r.mu.Lock()
		defer r.mu.Unlock()
		if n := len(r.readers); n != MaxReaders-1 {
			return fmt.Errorf("%d readers", n)
		}
		return nil
	})
	r.Close()
	for lines.Scan() { // to its end
	}
	ask(http.MethodGet, http.StatusServiceUnavailable)
}

// TestRun samples at once and twice a second, and ends by a sample that cannot be sent.
func TestRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		samples := 0
		ctx, cancel := context.WithTimeout(t.Context(), 10*Every+1)
		defer cancel()
		if err := New(func() Sample { samples++; return Sample{} }).Run(ctx); err != nil || samples != 11 {
			t.Errorf("%d samples, %v", samples, err)
		}
		s := New(func() Sample { return Sample{Regions: func() {}} })
		if _, _, err := s.open(); err != nil {
			t.Fatal(err)
		}
		if err := s.Run(t.Context()); err == nil {
			t.Error("it goes on")
		}
	})
}

func TestFiles(t *testing.T) {
	h := Files()
	for target, want := range map[string]string{
		"/": "text/html", "/page/style.css": "text/css", "/page/script.js": "text/javascript", "/page/icon.svg": "image/svg+xml",
		"/page/nothing": "", "/page/../page.go": "",
	} {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, target, http.NoBody))
		if ok := w.Code == http.StatusOK; ok != (want != "") || ok && !strings.HasPrefix(w.Header().Get("Content-Type"), want) {
			t.Errorf("%s: %d %s", target, w.Code, w.Header().Get("Content-Type"))
		}
		if csp := w.Header().Get("Content-Security-Policy"); !strings.HasPrefix(csp, "default-src 'self';") {
			t.Errorf("%s: the policy is %q", target, csp)
		}
		for _, bad := range []string{"<style", "style=", "onclick", "innerHTML", "http://", "https://", "eval("} {
			body := strings.ReplaceAll(w.Body.String(), "http://www.w3.org/2000/svg", "")
			if strings.Contains(body, bad) {
				t.Errorf("%s contains %s", target, bad)
			}
		}
	}
}

// TestClockSetBack: a clock that is set back by an hour moves the timeline with it. No point has more than a
// step has, and the newest is of now.
func TestClockSetBack(t *testing.T) {
	r := newRecorded(t)
	now, allowed := time.Unix(1_700_000_000, 0), int64(0)
	tick := func(by time.Duration) {
		now = now.Add(by)
		allowed++
		r.next.Policies = []Policy{{Name: "p", Allowed: allowed}}
		r.at(now)
	}
	for range 100 {
		tick(Every)
	}
	first, reader, err := r.open()
	if err != nil || len(first) == 0 {
		t.Fatal(err)
	}
	tick(-time.Hour)
	for range 100 {
		tick(Every)
	}
	h, sums := r.shown()
	if sums["p"][0] != allowed {
		t.Errorf("%d are allowed in the timeline, %d were", sums["p"][0], allowed)
	}
	if at := time.UnixMilli(h.StepMS); now.Sub(at) < 0 || now.Sub(at) >= Step {
		t.Errorf("the newest point begins at %v, and it is %v", at.UTC(), now.UTC())
	}
	for i, n := range h.Policies[0].Allowed {
		if n > int64(Step/Every)+2 {
			t.Errorf("point %d of %d has %d, at most %d are in a step", i, len(h.Policies[0].Allowed), n, Step/Every)
		}
	}
	for range reader { // closed: the browser connects again, and gets the timeline as it is now
	}
}

// TestPoliciesComeAndGo: a policy that a reload removes is shown until its points are over, and then makes room. What
// comes back goes on where it ended.
func TestPoliciesComeAndGo(t *testing.T) {
	r := newRecorded(t)
	now := time.Unix(1_700_000_000, 0)
	name := func(generation, i int) string { return fmt.Sprintf("g%d-%d", generation, i) }
	for generation := range 3 {
		r.next.Policies = nil
		for i := range MaxPolicies {
			r.next.Policies = append(r.next.Policies, Policy{Name: name(generation, i), Allowed: 3, Denied: 2})
		}
		r.at(now)
		now = now.Add(Span)
		r.at(now)
		if _, sums := r.shown(); len(sums) < MaxPolicies {
			t.Fatalf("%d policies", len(sums))
		}
	}
	r.next.Policies = []Policy{{Name: name(0, 0), Allowed: 4, Denied: 2}, {Name: "new", Allowed: 7}}
	r.at(now)
	if _, sums := r.shown(); sums["new"] != [2]int64{7, 0} || sums[name(0, 0)] != [2]int64{1, 0} || len(sums) != 2 {
		t.Errorf("the new policy has %d, one that came back %d, of %d", sums["new"], sums[name(0, 0)], len(sums))
	}
}

// TestManyPolicies: those that have no line of their own are added up in one, so that all of them together
// are what callers were answered.
func TestManyPolicies(t *testing.T) {
	r := newRecorded(t)
	now := time.Unix(1_700_000_000, 0)
	for round := range 3 {
		r.next.Policies = nil
		for i := range 200 {
			r.next.Policies = append(r.next.Policies, Policy{Name: fmt.Sprint("p", i), Allowed: int64(round * i), Denied: int64(round), Ratio: float64(i) / 100})
		}
		r.at(now.Add(time.Duration(round) * Step))
	}
	h, sums := r.shown()
	total := [2]int64{}
	for _, sum := range sums {
		total[0], total[1] = total[0]+sum[0], total[1]+sum[1]
	}
	if want := [2]int64{2 * 199 * 200 / 2, 2 * 200}; total != want {
		t.Errorf("%d lines add up to %d, want %d", len(sums), total, want)
	}
	if len(sums) != MaxPolicies+1 {
		t.Fatalf("%d lines", len(sums))
	}
	if over := h.Policies[MaxPolicies].Overshoot[0]; over == nil || math.Abs(*over-0.99) > 1e-9 {
		t.Errorf("the largest overshoot of the others is %v, want 0.99", over)
	}
}
