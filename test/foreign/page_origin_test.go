package foreign_test

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
)

// heldPaths are the calls that cost or hold something.
var heldPaths = []string{"/v1/events", "/debug/pprof/profile?seconds=30", "/v1/top", "/v1/explain/acme"}

// foreignSite serves a page that has its visitor's browser ask for each of heldPaths in every way that needs no leave of target.
func foreignSite(t *testing.T, target *string) (port string) {
	t.Helper()
	site := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		fmt.Fprint(w, "<!doctype html><link rel=icon href=data:,><body>")
		for _, path := range heldPaths {
			fmt.Fprintf(w, `<img src="%[1]s%[2]s"><iframe src="%[1]s%[2]s"></iframe><script>fetch("%[1]s%[2]s", {mode: "no-cors", credentials: "include"}).catch(() => {})</script>`, *target, path)
		}
	}))
	t.Cleanup(func() {
		site.CloseClientConnections()
		site.Close()
	})
	_, port, _ = net.SplitHostPort(site.Listener.Addr().String())
	return port
}

var endedCalls = regexp.MustCompile(`(?m)^regiond_http_duration_seconds_count\{route="GET /(?:v1/events|debug/pprof).*\} (\d+)$`)

// ended is how many streams and profiles are over, as those are at once that are refused.
func ended(admin string) (n int, err error) {
	req, err := http.NewRequest(http.MethodGet, "http://"+admin+"/metrics", http.NoBody)
	if err != nil {
		return 0, err
	}
	req.Header.Set("X-Regiond-Token", "metrics")
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, err
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err == nil && res.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", res.Status, text)
	}
	for _, m := range endedCalls.FindAllStringSubmatch(string(text), -1) {
		one, _ := strconv.Atoi(m[1])
		n += one
	}
	return n, err
}

// TestForeignPages: over plain HTTP a browser says of images and frames neither whose page they are on, nor that a cookie comes
// with them from another port. None of them holds a stream, records a profile or looks anybody up; and the page itself works there.
func TestForeignPages(t *testing.T) {
	for name, guarded := range map[string]bool{"no tokens": false, "a session": true} {
		t.Run(name, func(t *testing.T) {
			access := "access: {allowed_hosts: [admin.corp]"
			if guarded {
				tokens := filepath.Join(t.TempDir(), "tokens")
				lines := fmt.Sprintf("ops %s\nscrape %s scopes=metrics\n", sum("an admin's long token"), sum("metrics"))
				if err := os.WriteFile(tokens, []byte(lines), 0o600); err != nil {
					t.Fatal(err)
				}
				access += ", admin_tokens_file: " + tokens
			}
			_, adminAt := serve(t, "", oneLimit+access+"}\n")
			_, port, _ := net.SplitHostPort(adminAt)

			const contentShown = `!document.getElementById("content").hidden && document.querySelectorAll('#regions tbody tr').length === 1`
			b := openBrowser(t, 1280, 900)
			page := "http://admin.corp:" + port
			b.do(t, chromedp.Navigate(page+"/"))
			if guarded {
				b.await(t, 20*time.Second, `!document.getElementById("login").hidden`)
				b.do(t, chromedp.SendKeys(chromedp.CSS("#token"), "an admin's long token\r"))
			}
			b.await(t, 20*time.Second, contentShown+` && !document.getElementById("top-section").hidden`)

			b.do(t, chromedp.Navigate("about:blank"))
			eventually(t, 20*time.Second, func() error {
				n, err := ended(adminAt)
				if err == nil && (n == 0 || guarded && n == 1) { // the first was refused before the login
					err = errors.New("the page's own stream has not ended")
				}
				return err
			})
			target := page
			site := foreignSite(t, &target)
			for _, c := range []struct{ site, target string }{
				{"http://evil.corp:" + site, page}, {"http://admin.corp:" + site, page}, // another name, and another port
				{"http://evil.corp:" + site, "http://127.0.0.1:" + port},
			} {
				before, err := ended(adminAt)
				if err != nil {
					t.Fatal(err)
				}
				target = c.target
				b.value(t, fmt.Sprintf("location = %q", c.site+"/")) // not waited for: frames that are held would never have loaded
				eventually(t, 20*time.Second, func() error {
					n, err := ended(adminAt)
					if want := before + 3*2; err == nil && n < want {
						err = fmt.Errorf("of %d calls by a page of %s to %s %d have ended", want-before, c.site, c.target, n-before)
					}
					return err
				})
			}
			b.do(t, chromedp.Navigate(page+"/"))
			b.await(t, 20*time.Second, contentShown)
		})
	}
}
