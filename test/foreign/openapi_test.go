package foreign_test

import (
	"encoding/json"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	_ "github.com/oapi-codegen/runtime" // the generated client imports it
)

// clientMain calls regiond at os.Args[1] with the client that oapi-codegen made, and prints what it has decoded.
const clientMain = `package main

import (
	"context"
	"encoding/json"
	"os"
)

func main() {
	ctx := context.Background()
	c, err := NewClientWithResponses(os.Args[1])
	try(err)
	cost := Cost(3)
	check := func(tenant string) *CheckResponse {
		r, err := c.CheckWithResponse(ctx, nil, Check{Tenant: ID(tenant), Cost: &cost})
		try(err)
		return r
	}
	allowed, denied, wrong := check("acme"), check("acme"), check("a b")
	usage, err := c.UsageWithResponse(ctx, "acme", nil)
	try(err)
	batch, err := c.CheckBatchWithResponse(ctx, nil, Batch{Checks: []Check{{Tenant: "globex"}}})
	try(err)
	try(json.NewEncoder(os.Stdout).Encode(map[string]any{
		"allowed": allowed.JSON200, "denied": denied.ApplicationproblemJSON429, "wrong": wrong.ApplicationproblemJSON400,
		"usage": usage.JSON200, "batch": batch.JSON200,
	}))
}

func try(err error) {
	if err != nil {
		panic(err)
	}
}
`

// TestGeneratedClient: oapi-codegen makes a client of openapi.yaml, and the client decodes what a regiond answers: an allowed
// check, a denied one, a problem, usage, a batch.
func TestGeneratedClient(t *testing.T) {
	dir, err := os.MkdirTemp("testdata", "client") // within this module, for what it imports
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	if err := os.WriteFile(filepath.Join(dir, "main.go"), []byte(clientMain), 0o600); err != nil {
		t.Fatal(err)
	}
	run := func(name string, args ...string) string {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), name, args...)
		var errs strings.Builder
		cmd.Stderr = &errs
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("%s %q: %v\n%s", name, args, err, errs.String())
		}
		return string(out)
	}
	run("go", "tool", "oapi-codegen", "-generate", "types,client", "-package", "main", "-o", filepath.Join(dir, "client.gen.go"), "../../httpapi/openapi.yaml")

	data, _ := serve(t, "", `policies: [{name: standard, limits: [{name: hourly, units: 5, per: 1h}]}]
tenants: {default: {policy: standard}}
`)
	type decision struct {
		Allowed   bool   `json:"allowed"`
		Name      string `json:"name"`
		Remaining int    `json:"remaining"`
		Status    int    `json:"status"`
		Type      string `json:"type"`
		Errors    []struct {
			Pointer string `json:"pointer"`
		} `json:"errors"`
		Violated []string `json:"violated-policies"`
	}
	var got struct {
		Allowed, Denied, Wrong, Usage *decision
		Batch                         struct {
			Results []decision `json:"results"`
		}
	}
	out := run("go", "run", "./"+dir, "http://"+data)
	if err := json.Unmarshal([]byte(out), &got); err != nil || got.Allowed == nil || got.Denied == nil || got.Wrong == nil || got.Usage == nil {
		t.Fatalf("the client printed %s (%v)", out, err)
	}
	if d := got.Allowed; !d.Allowed || d.Name != "hourly" || d.Remaining != 2 {
		t.Errorf("allowed: %+v", d)
	}
	if d := got.Denied; d.Allowed || d.Status != http.StatusTooManyRequests || len(d.Violated) != 1 || d.Violated[0] != "standard.hourly" {
		t.Errorf("denied: %+v", d)
	}
	if d := got.Wrong; d.Status != http.StatusBadRequest || d.Type != "urn:regiond:problem:invalid-request" || len(d.Errors) != 1 || d.Errors[0].Pointer != "#/tenant" {
		t.Errorf("wrong: %+v", d)
	}
	if got.Usage.Remaining != 2 {
		t.Errorf("usage: %+v", got.Usage)
	}
	if r := got.Batch.Results; len(r) != 1 || !r[0].Allowed || r[0].Remaining != 4 {
		t.Errorf("batch: %+v", r)
	}
}
