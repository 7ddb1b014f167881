package foreign_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
)

// TestPageShowsWhatIsHeld: who is refused because of open reservations is told so by a click.
func TestPageShowsWhatIsHeld(t *testing.T) {
	at, adminAt := serve(t, "", `policies:
  - name: llm
    limits:
      - {name: tokens, units: 100, per: 1m, by: [user], counts: tokens}
      - {name: team, units: 200, per: 1m, counts: tokens}
tenants: {default: {policy: llm}}
`)
	for _, call := range []struct {
		path, body string
		want       int
	}{
		{"reserve", `{"tenant":"acme","dimensions":{"user":"42"},"amount":60,"ttl_ms":100000}`, http.StatusOK},
		{"check", `{"tenant":"acme","dimensions":{"user":"42"},"cost":50}`, http.StatusTooManyRequests},
	} {
		res, err := http.Post("http://"+at+"/v1/"+call.path, "application/json", strings.NewReader(call.body))
		if err != nil {
			t.Fatal(err)
		}
		res.Body.Close()
		if res.StatusCode != call.want {
			t.Fatalf("%s: %s", call.path, res.Status)
		}
	}
	b := openBrowser(t, 1280, 900)
	b.do(t, chromedp.Navigate("http://"+adminAt+"/"))
	b.await(t, time.Minute, `document.querySelectorAll("#top tbody tr").length === 1`)
	if got := b.value(t, cellsOf("top")); got != "acme|llm / tokens|user=42|50" {
		t.Errorf("the page ranks %q", got)
	}
	b.do(t, chromedp.Click(chromedp.CSS("#top tbody tr button")))
	b.await(t, 20*time.Second, `document.getElementById("why-title").textContent.startsWith("acme")`)
	if got := b.value(t, `document.getElementById("why-text").textContent`); strings.Count(got, "60 units of it are held by open reservations") != 2 {
		t.Errorf("it explains %q", got)
	}
}
