package daemon

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	auth "github.com/envoyproxy/go-control-plane/envoy/service/auth/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
)

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
