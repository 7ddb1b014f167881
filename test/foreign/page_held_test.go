package foreign_test

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"github.com/regiond/regiond/test/ports"
)

// TestPageShowsWhatIsHeld: who is refused because of open reservations is told so by a click.
func TestPageShowsWhatIsHeld(t *testing.T) {
	port := ports.Take(t, 1)
	topology := filepath.Join(t.TempDir(), "topology.yaml")
	if err := os.WriteFile(topology, fmt.Appendf(nil, `
regions: [{name: here, http: "127.0.0.1:%d", admin: "127.0.0.1:%d", redis: {embedded: true}}]
policies:
  - name: llm
    limits:
      - {name: tokens, units: 100, per: 1m, by: [user], counts: tokens}
      - {name: team, units: 200, per: 1m, counts: tokens}
tenants: {default: {policy: llm}}
`, port, port+1), 0o600); err != nil {
		t.Fatal(err)
	}
	start(t, "serve", "--config", topology, "--region", "here")
	data, admin := fmt.Sprintf("http://127.0.0.1:%d", port), fmt.Sprintf("http://localhost:%d", port+1)
	eventually(t, 20*time.Second, func() error {
		_, err := get(admin + "/readyz")
		return err
	})
	for _, call := range []struct {
		path, body string
		want       int
	}{
		{"reserve", `{"tenant":"acme","dimensions":{"user":"42"},"amount":60,"ttl_ms":100000}`, http.StatusOK},
		{"check", `{"tenant":"acme","dimensions":{"user":"42"},"cost":50}`, http.StatusTooManyRequests},
	} {
		res, err := http.Post(data+"/v1/"+call.path, "application/json", strings.NewReader(call.body))
		if err != nil {
			t.Fatal(err)
		}
		res.Body.Close()
		if res.StatusCode != call.want {
			t.Fatalf("%s: %s", call.path, res.Status)
		}
	}
	b := openBrowser(t, 1280, 900)
	b.do(t, chromedp.Navigate(admin+"/"))
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
