package foreign_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
)

// cellsOf are the texts of a table's body, by row.
func cellsOf(table string) string {
	return `[...document.querySelectorAll("#` + table + ` tbody tr")].map(r => [...r.cells].map(c => c.textContent).join("|")).join("\n")`
}

// TestPageFigures: at rest, what the page says of the timeline and of who is ranked is what callers
// were answered and what the API has.
func TestPageFigures(t *testing.T) {
	at, adminAt := serve(t, "", `policies:
  - name: standard
    limits: [{name: monthly, units: 100, per: 720h, scope: global}, {name: hourly, units: 8, per: 1h, by: [user]}]
tenants: {default: {policy: standard}}
`)
	answers := map[int]int{}
	for i := range 33 { // three users, eleven checks each
		body := fmt.Sprintf(`{"tenant":"acme","dimensions":{"user":"u%d"}}`, i%3)
		res, err := http.Post("http://"+at+"/v1/check", "application/json", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		res.Body.Close()
		answers[res.StatusCode]++
	}
	if answers[http.StatusOK] != 24 || answers[http.StatusTooManyRequests] != 9 {
		t.Fatalf("the answers are %v", answers)
	}

	b := openBrowser(t, 1280, 900)
	b.do(t, chromedp.Navigate("http://"+adminAt+"/"))
	b.await(t, time.Minute, `document.querySelectorAll("#top tbody tr").length >= 3`)
	sum := func(column int) string {
		return b.value(t, fmt.Sprintf(`[...document.querySelectorAll("#timeline-table tbody tr")].reduce((n, r) => n + Number(r.cells[%d].textContent), 0)`, column))
	}
	if allowed, denied := sum(1), sum(2); allowed != "24" || denied != "9" {
		t.Errorf("the timeline has %s allowed and %s denied, callers were told of 24 and 9", allowed, denied)
	}

	for _, by := range []string{"denied", "used"} {
		b.value(t, fmt.Sprintf(`(s => { s.value = %q; s.dispatchEvent(new Event("change")) })(document.getElementById("top-by"))`, by))
		text, err := get("http://" + adminAt + "/v1/top?limit=10&window=1m&by=" + by)
		if err != nil {
			t.Fatal(err)
		}
		var top struct {
			Rows []struct {
				Tenant    string `json:"tenant"`
				Policy    string `json:"policy"`
				Limit     string `json:"limit"`
				Partition string `json:"partition"`
				AtLeast   int64  `json:"at_least"`
				AtMost    int64  `json:"at_most"`
			} `json:"rows"`
		}
		if err := json.Unmarshal([]byte(text), &top); err != nil || len(top.Rows) < 3 {
			t.Fatalf("%v: %s", err, text)
		}
		var want []string
		for _, r := range top.Rows {
			counted := "the tenant"
			if _, user, ok := strings.Cut(r.Partition, "user:2."); ok {
				counted = "user=" + strings.TrimSuffix(user, ":")
			}
			if r.AtLeast != r.AtMost {
				t.Fatalf("a few partitions are counted exactly: %s", text)
			}
			want = append(want, fmt.Sprintf("%s|%s / %s|%s|%d", r.Tenant, r.Policy, r.Limit, counted, r.AtLeast))
		}
		all := strings.Join(want, "\n")
		b.await(t, 20*time.Second, fmt.Sprintf(`%s === %q`, cellsOf("top"), all))
	}
	if c := b.complained(); len(c) > 0 {
		t.Errorf("the console has %q", c)
	}
}

// mustShowLimits compares the table of global limits with what the API explains.
func (b *browser) mustShowLimits(t *testing.T, admin string) {
	t.Helper()
	table := b.value(t, cellsOf("limits"))
	for _, row := range strings.Split(table, "\n") {
		title, _, _ := strings.Cut(row, "|")
		policy, name, _ := strings.Cut(title, " / ")
		text, err := get(admin + "/v1/explain/acme?policy=" + policy)
		if err != nil {
			t.Fatal(err)
		}
		var answer struct {
			Limits []struct {
				Name   string `json:"name"`
				Limit  int64  `json:"limit"`
				Window int64  `json:"window_ms"`
			} `json:"limits"`
			Explain struct {
				Limits []struct {
					Part  int64     `json:"part"`
					Bound *struct{} `json:"bound"`
				} `json:"limits"`
			} `json:"explain"`
		}
		if err := json.Unmarshal([]byte(text), &answer); err != nil {
			t.Fatalf("%v: %s", err, text)
		}
		want := ""
		for i, l := range answer.Limits {
			if l.Name != name {
				continue
			}
			bound, window := "estimated", map[int64]string{10_000: "10 seconds", 60_000: "a minute"}[l.Window]
			if answer.Explain.Limits[i].Bound != nil {
				bound = "over by 0% at most"
			}
			want = fmt.Sprintf("%s|%d in %s|%s|%d|", title, l.Limit, window, bound, answer.Explain.Limits[i].Part)
		}
		if want == "" || !strings.HasPrefix(row, want) {
			t.Errorf("the page says %q, want %q…", row, want)
		}
	}
	if n := strings.Count(table, "\n"); n < 2 {
		t.Errorf("the table of limits has %d rows: %q", n+1, table)
	}
}
