package foreign_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"github.com/regiond/regiond/internal/page"
)

// figures are what a process could send that is as hostile as names may be.
type figures struct {
	mu     sync.Mutex
	now    page.Sample
	top    map[string]any
	stream *page.Stream
	stop   func()
}

func (f *figures) sample() page.Sample {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.now
}

func (f *figures) set(change func(f *figures)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change(f)
}

// restart has another process take the place of the one before.
func (f *figures) restart(t *testing.T) {
	t.Helper()
	if f.stop != nil {
		f.stop()
	}
	stream := page.New(f.sample)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error)
	go func() { done <- stream.Run(ctx) }()
	f.set(func(f *figures) { f.stream = stream })
	f.stop = func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		stream.Close()
	}
}

// serve has the page's own files and stream, and answers of the test's.
func (f *figures) serve(t *testing.T) string {
	t.Helper()
	f.restart(t)
	mux := http.NewServeMux()
	mux.Handle("/", page.Files())
	mux.HandleFunc("/v1/events", func(w http.ResponseWriter, r *http.Request) {
		f.mu.Lock()
		stream := f.stream
		f.mu.Unlock()
		stream.ServeHTTP(w, r)
	})
	answer := func(body func() any) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) { _ = json.NewEncoder(w).Encode(body()) }
	}
	mux.HandleFunc("/v1/top", answer(func() any { f.mu.Lock(); defer f.mu.Unlock(); return f.top }))
	mux.HandleFunc("/v1/explain/{tenant}", func(w http.ResponseWriter, r *http.Request) {
		_ = json.NewEncoder(w).Encode(map[string]any{"explain": map[string]any{"sentences": []string{r.PathValue("tenant") + " asked with " + r.URL.RawQuery}}})
	})
	server := httptest.NewServer(mux)
	t.Cleanup(func() {
		f.stop()
		server.CloseClientConnections()
		server.Close()
	})
	return server.URL
}

// TestPageOfHostileFigures: whatever names, figures and partitions come, the page shows them as text, keeps its
// width, and goes on.
func TestPageOfHostileFigures(t *testing.T) {
	long := strings.Repeat("x", 250)
	quotes := `"'<b onmouseover=alert(1)>&amp;` + "`${1}"
	row := func(tenant, partition string, least, most int64) map[string]any {
		return map[string]any{"tenant": tenant, "policy": "p", "limit": "l", "partition": partition, "at_least": least, "at_most": most}
	}
	report := func(regions []map[string]any) map[string]any {
		return map[string]any{
			"region": "here" + quotes, "version": "v", "config_hash": "0", "mode": map[string]any{"mode": "partitioned", "reason": quotes, "about": []string{long}},
			"store": map[string]any{"available": true}, "regions": regions,
		}
	}
	f := &figures{now: page.Sample{
		Regions:  report([]map[string]any{{"name": "here", "self": true, "counted": true, "heard_ms": -1}, {"name": long[:63], "state": "silent", "heard_ms": 1e9, "detail": "\u202egnp." + quotes}}),
		Policies: []page.Policy{{Name: "first", Allowed: 1 << 40, Denied: 1, Ratio: 1e6}, {Name: "second", Allowed: 3}},
		Limits:   []page.Limit{{Policy: long[:63], Name: long[:63], Units: 1 << 40, WindowMS: 31 * 24 * 3_600_000, MaxOvershoot: "10%", Share: 1 << 39}},
		States:   []page.State{{Region: "here", State: "global"}},
	}, top: map[string]any{"rows": []map[string]any{
		row(quotes, "user:2.42:", 1, 1<<52), row(long, "user,ip:"+fmt.Sprint(len(quotes))+"."+quotes+",-:route=5.a=b,c", 5, 5), row("", "::", 4, 4),
		row("short", "", 3, 3), row("colon", ":", 3, 3), row("none", "user", 2, 2), row("lengths", "user:9e9.a,b:c=", 2, 2), row("equals", "::====", 1, 1),
		row("crowd", "user:0.:", 1, 1), row("", "ip:0.:", 1, 1), row("tokens", "#user:2.42:", 1, 1), row("all tokens", "#::", 1, 1),
	}, "notes": []string{quotes + long}}}
	address := f.serve(t)
	b := openBrowser(t, 360, 740)
	b.do(t, chromedp.Navigate(address+"/"))
	b.await(t, time.Minute, `document.querySelectorAll("#top tbody tr").length === 12 && document.querySelectorAll("#regions tbody tr").length === 2`)
	for i, want := range []string{quotes + "|p / l|user=42|1 to 4,503,599,627,370,496", long + "|p / l|user=" + quotes + ", route=a=b,c|5", "all others|p / l|the tenant|4"} {
		quoted, _ := json.Marshal(want)
		if got := b.value(t, fmt.Sprintf(`%s.split("\n")[%d] === %s`, cellsOf("top"), i, quoted)); got != "true" {
			t.Errorf("row %d is %q, want %q", i, b.value(t, cellsOf("top")), want)
		}
	}
	if n := b.value(t, `document.querySelectorAll("main b, main img").length`); n != "0" {
		t.Errorf("%s names became markup", n)
	}
	for row, want := range map[int]string{
		8: "crowd|p / l|all other values of user|1", 9: "all others|p / l|all other values of ip|1",
		10: "tokens|p / l|user=42|1", 11: "all tokens|p / l|the tenant|1",
	} {
		if got := b.value(t, fmt.Sprintf(`%s.split("\n")[%d]`, cellsOf("top"), row)); got != want {
			t.Errorf("row %d is %q, want %q", row, got, want)
		}
	}
	b.value(t, `[...document.querySelectorAll("#top tbody button")].find(e => e.textContent === "crowd").click()`)
	b.await(t, 20*time.Second, `document.getElementById("why-text").textContent.startsWith("Values beyond max_values share this partition")`)
	b.value(t, `document.querySelectorAll("#top tbody button")[1].click()`)
	b.await(t, 20*time.Second, `document.getElementById("why-text").textContent.includes(" asked with policy=p&dim.user=")`)
	for tenant, asked := range map[string]string{"tokens": "tokens asked with policy=p&dim.user=42", "all tokens": "all tokens asked with policy=p"} {
		b.value(t, `[...document.querySelectorAll("#top tbody button")].find(e => e.textContent === "`+tenant+`").click()`)
		b.await(t, 20*time.Second, `document.getElementById("why-text").textContent === "`+asked+`"`)
	}
	b.await(t, 5*time.Second, fits)

	// Another policy of the same number, no region, and a mode that changes.
	f.set(func(f *figures) {
		f.now = page.Sample{Regions: report([]map[string]any{}), Policies: []page.Policy{{Name: "first", Allowed: 1 << 40}, {Name: "third"}}, States: []page.State{{Region: "here", State: long, Reason: quotes}}}
		f.top = map[string]any{}
	})
	b.await(t, 20*time.Second, `document.querySelectorAll("#regions tbody tr").length + document.querySelectorAll("#top tbody tr").length === 0`)
	b.await(t, 20*time.Second, `document.getElementById("events").textContent.includes("<b onmouseover")`)
	b.await(t, 20*time.Second, `[...document.getElementById("policy").options].map(o => o.textContent).join() === "all,first,second,third"`)
	b.await(t, 5*time.Second, fits)

	// A process that was started with other policies, of the same number as the page had.
	f.set(func(f *figures) { f.now.Policies = []page.Policy{{Name: "first"}, {Name: "second"}, {Name: "fourth"}} })
	f.restart(t)
	b.await(t, 20*time.Second, `[...document.getElementById("policy").options].map(o => o.textContent).join() === "all,first,second,fourth"`)
	if c := b.complained(); len(c) > 0 {
		t.Errorf("the console has %q", c)
	}
}

// TestPageBeforeFirstState: until the first state comes it is not known how much of the newest step is over, and no rate is
// shown that is higher than it can have been.
func TestPageBeforeFirstState(t *testing.T) {
	at := time.Now().Truncate(page.Step).UnixMilli()
	mux := http.NewServeMux()
	mux.Handle("/", page.Files())
	mux.HandleFunc("/v1/events", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		fmt.Fprintf(w, "event: history\ndata: {\"step_ms\":%d,\"every_ms\":5000,\"points\":180,\"policies\":[{\"name\":\"p\",\"allowed\":[500],\"denied\":[5],\"overshoot\":[null]}]}\n\n", at)
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	})
	mux.HandleFunc("/v1/top", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "{}") })
	server := httptest.NewServer(mux)
	t.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
	})
	b := openBrowser(t, 1280, 900)
	b.do(t, chromedp.Navigate(server.URL+"/"))
	b.await(t, time.Minute, `!document.getElementById("content").hidden`)
	b.value(t, `document.getElementById("traffic").dispatchEvent(new KeyboardEvent("keydown", {key: "ArrowRight"}))`)
	if got := b.value(t, `document.getElementById("readout").textContent`); !strings.HasSuffix(got, ": 100 allowed and 1 denied a second") {
		t.Errorf("of 500 requests in a step of 5 s the page says %q", got)
	}
}
