package foreign_test

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
)

// tab opens another tab of the same browser.
func (b *browser) tab(t *testing.T) *browser {
	t.Helper()
	ctx, cancel := chromedp.NewContext(b.ctx)
	t.Cleanup(cancel)
	other := &browser{ctx: ctx}
	other.do(t, chromedp.EmulateViewport(1280, 900))
	return other
}

// sum is the SHA-256 of a token, in hex.
func sum(token string) string {
	h := sha256.Sum256([]byte(token))
	return hex.EncodeToString(h[:])
}

// oneLimit is policies that a page shows.
const oneLimit = `policies:
  - {name: standard, limits: [{name: burst, units: 20, per: 1s}]}
tenants: {default: {policy: standard}}
`

// TestPageWithTokens logs in: without a token nothing is shown.
func TestPageWithTokens(t *testing.T) {
	tokens := filepath.Join(t.TempDir(), "tokens")
	if err := os.WriteFile(tokens, fmt.Appendf(nil, "ops %s\n", sum("an admin's long token")), 0o600); err != nil {
		t.Fatal(err)
	}
	_, adminAt := serve(t, "", oneLimit+"access: {admin_tokens_file: "+tokens+"}\n")
	if _, err := get("http://" + adminAt + "/v1/events"); err == nil || !strings.Contains(err.Error(), "401") {
		t.Errorf("without a token the stream answers %v", err)
	}
	b := openBrowser(t, 1280, 900)
	const loginShown, contentShown = `!document.getElementById("login").hidden`, `!document.getElementById("content").hidden`
	b.do(t, chromedp.Navigate("http://"+adminAt+"/"))
	b.await(t, 20*time.Second, loginShown)
	b.do(t, chromedp.SendKeys(chromedp.CSS("#token"), "wrong\r"))
	b.await(t, 20*time.Second, `document.getElementById("login-error").textContent.includes("not known")`)
	b.screenshot(t, "login", false)
	b.value(t, `document.getElementById("token").value = ""`)
	b.do(t, chromedp.SendKeys(chromedp.CSS("#token"), "an admin's long token\r"))
	b.await(t, 20*time.Second, contentShown+" && document.querySelectorAll('#regions tbody tr').length === 1")
	if c := b.value(t, `document.cookie`); c != "" {
		t.Errorf("a script can read %q", c)
	}
	// Another tab has the session too, and can end it; the stream of the first ends with it.
	other := b.tab(t)
	other.do(t, chromedp.Navigate("http://"+adminAt+"/"))
	other.await(t, 20*time.Second, contentShown+` && !document.getElementById("logout").hidden`)
	other.do(t, chromedp.Click(chromedp.CSS("#logout")))
	other.await(t, 20*time.Second, loginShown)
	b.await(t, 20*time.Second, loginShown+` && document.getElementById("logout").hidden`)
}
