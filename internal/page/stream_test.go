package page_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/regiond/regiond/internal/page"
	"github.com/regiond/regiond/test/leaks"
)

func TestMain(m *testing.M) { leaks.Main(m) }

// event is one of a stream.
type event struct{ name, data string }

// reader is a browser's side of a stream.
type reader struct {
	t      *testing.T
	status int
	lines  *bufio.Scanner
	cancel context.CancelFunc
	done   chan struct{} // the handler has returned
}

// pipe is a response that is read while it is written.
type pipe struct {
	header http.Header
	status chan int
	once   bool
	w      *io.PipeWriter
}

func (p *pipe) Header() http.Header { return p.header }
func (p *pipe) Flush()              {}
func (p *pipe) WriteHeader(status int) {
	if !p.once {
		p.once = true
		p.status <- status
	}
}

func (p *pipe) Write(b []byte) (int, error) {
	p.WriteHeader(http.StatusOK)
	return p.w.Write(b)
}

func open(t *testing.T, s http.Handler) *reader {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	from, to := io.Pipe()
	w := &pipe{header: http.Header{}, status: make(chan int, 1), w: to}
	r := &reader{t: t, cancel: func() { cancel(); from.Close() }, lines: bufio.NewScanner(from), done: make(chan struct{})}
	r.lines.Buffer(nil, 1<<20)
	go func() {
		defer close(r.done)
		defer to.Close()
		s.ServeHTTP(w, httptest.NewRequestWithContext(ctx, http.MethodGet, "/v1/events", http.NoBody))
	}()
	r.status = <-w.status
	return r
}

// next returns an event; its name is "" at the end.
func (r *reader) next() (e event) {
	r.t.Helper()
	for r.lines.Scan() {
		name, value, _ := strings.Cut(r.lines.Text(), ": ")
		switch name {
		case "event":
			e.name = value
		case "data":
			e.data = value
		case "":
			return e
		}
	}
	return event{}
}

// run runs a stream until the test ends.
func run(t *testing.T, sample func() page.Sample) (s *page.Stream, stop func()) {
	t.Helper()
	s = page.New(sample)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error)
	go func() { done <- s.Run(ctx) }()
	synctest.Wait()
	return s, func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		s.Close()
		synctest.Wait()
	}
}

type history struct {
	StepMS   int64 `json:"step_ms"`
	Policies []struct {
		Name      string     `json:"name"`
		Allowed   []int64    `json:"allowed"`
		Denied    []int64    `json:"denied"`
		Overshoot []*float64 `json:"overshoot"`
	} `json:"policies"`
}

func decode[T any](t *testing.T, e event, name string) (v T) {
	t.Helper()
	if e.name != name {
		t.Fatalf("the event is %q, want %s", e.name, name)
	}
	if err := json.Unmarshal([]byte(e.data), &v); err != nil {
		t.Fatal(err)
	}
	return v
}

// The timeline is what a plain list of all samples adds up to: nothing is lost between steps,
// and after 15 minutes the oldest goes.
func TestTimeline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		type count struct{ allowed, denied int64 }
		var mu sync.Mutex          // of what the sampler shares with the test
		model := map[int64]count{} // by step
		var now, before count
		s, stop := run(t, func() page.Sample {
			mu.Lock()
			defer mu.Unlock()
			seconds := time.Now().Unix()
			now.allowed += seconds % 7
			now.denied += seconds % 3
			at := seconds / 5
			m := model[at]
			m.allowed += now.allowed - before.allowed
			m.denied += now.denied - before.denied
			model[at], before = m, now
			return page.Sample{Policies: []page.Policy{{Name: "p", Allowed: now.allowed, Denied: now.denied, Ratio: float64(seconds%2) * 1.25}}}
		})
		defer stop()
		for _, wait := range []time.Duration{3 * time.Second, 100 * time.Second, 16 * time.Minute} {
			time.Sleep(wait)
			synctest.Wait()
			r := open(t, s)
			h := decode[history](t, r.next(), "history")
			r.cancel()
			<-r.done
			p := h.Policies[0]
			mu.Lock()
			want := maps.Clone(model)
			mu.Unlock()
			if len(p.Allowed) > 180 || wait > page.Span && len(p.Allowed) != 180 {
				t.Fatalf("%d points", len(p.Allowed))
			}
			for i := range p.Allowed {
				at := h.StepMS/5000 - int64(len(p.Allowed)-1-i)
				if m := want[at]; p.Allowed[i] != m.allowed || p.Denied[i] != m.denied {
					t.Fatalf("step %d has %d allowed and %d denied, want %+v", at, p.Allowed[i], p.Denied[i], m)
				}
				if len(p.Allowed) == 180 && i < 179 && (p.Overshoot[i] == nil || *p.Overshoot[i] != 0.25) {
					t.Fatalf("step %d has overshoot %v", at, p.Overshoot[i])
				}
			}
		}
	})
}

type state struct {
	Events []page.Change `json:"events"`
}

func TestChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mode atomic.Value
		mode.Store("global")
		s, stop := run(t, func() page.Sample {
			now, _ := mode.Load().(string)
			return page.Sample{States: []page.State{{Region: "eu", State: now, Reason: "why"}}}
		})
		defer stop()
		r := open(t, s)
		r.next() // history
		if got := decode[state](t, r.next(), "state"); len(got.Events) != 0 {
			t.Errorf("nothing changed, and there is %+v", got.Events)
		}
		mode.Store("partitioned")
		got := decode[state](t, r.next(), "state")
		if len(got.Events) != 1 || got.Events[0].From != "global" || got.Events[0].To != "partitioned" || got.Events[0].Reason != "why" {
			t.Errorf("changes %+v", got.Events)
		}
		for i := range 120 {
			mode.Store(fmt.Sprint("mode ", i))
			got = decode[state](t, r.next(), "state")
		}
		if len(got.Events) != 50 || got.Events[0].To != "mode 119" {
			t.Errorf("%d changes, the newest %+v", len(got.Events), got.Events[0])
		}
		r.cancel()
		<-r.done
	})
}

// A reader that does not read is dropped within seconds; the others notice nothing.
func TestSlowReaderIsDropped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, stop := run(t, func() page.Sample { return page.Sample{} })
		defer stop()
		slow, quick := open(t, s), open(t, s)
		slow.next()
		quick.next()
		for range 24 {
			if e := quick.next(); e.name != "state" {
				t.Fatalf("the quick reader got %q", e.name)
			}
		}
		events := 0
		for slow.next().name != "" {
			events++
		}
		if events > 9 { // eight wait and one is being written
			t.Errorf("%d events were kept for a reader that did not read", events)
		}
		<-slow.done
		quick.cancel()
		<-quick.done
	})
}

func TestReadersAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, stop := run(t, func() page.Sample { return page.Sample{} })
		defer stop()
		var all []*reader
		for range page.MaxReaders {
			all = append(all, open(t, s))
		}
		w := httptest.NewRecorder()
		s.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/v1/events", http.NoBody))
		if w.Code != http.StatusServiceUnavailable || w.Header().Get("Retry-After") == "" {
			t.Errorf("one too many gets %d", w.Code)
		}
		all[0].cancel()
		<-all[0].done
		again := open(t, s)
		if again.status != http.StatusOK {
			t.Errorf("after one left the next gets %d", again.status)
		}
		for _, r := range append(all[1:], again) {
			r.cancel()
			<-r.done
		}
	})
}

// A HEAD has no body and no end to wait for, so it takes no place of a reader.
func TestHead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, stop := run(t, func() page.Sample { return page.Sample{} })
		done := make(chan *httptest.ResponseRecorder, 1)
		go func() {
			w := httptest.NewRecorder()
			s.ServeHTTP(w, httptest.NewRequest(http.MethodHead, "/v1/events", http.NoBody))
			done <- w
		}()
		synctest.Wait()
		select {
		case w := <-done:
			if w.Code != http.StatusOK || w.Header().Get("Content-Type") != "text/event-stream" || w.Body.Len() > 0 {
				t.Errorf("%d %s, %d bytes", w.Code, w.Header().Get("Content-Type"), w.Body.Len())
			}
		default:
			t.Error("a HEAD is not answered")
		}
		stop()
	})
}

// Close ends what is open, so that a shutdown does not wait, and lets nobody in.
func TestClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, stop := run(t, func() page.Sample { return page.Sample{} })
		defer stop()
		r := open(t, s)
		r.next()
		s.Close()
		for r.next().name != "" { // what was sent before
		}
		<-r.done
		w := httptest.NewRecorder()
		s.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/v1/events", http.NoBody))
		if w.Code != http.StatusServiceUnavailable {
			t.Errorf("after Close a reader gets %d", w.Code)
		}
	})
}

func TestFiles(t *testing.T) {
	h := page.Files()
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
