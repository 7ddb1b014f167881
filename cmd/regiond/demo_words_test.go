package main

import (
	"context"
	"fmt"
	"net"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/regiond/regiond/internal/cli"
	"github.com/regiond/regiond/internal/demo"
)

func TestDemoCommandLine(t *testing.T) {
	base := demoPorts(t)
	port, control := strconv.Itoa(base), strconv.Itoa(base+demo.ControlOffset)
	s := session{replace: []string{cli.HowStarted(), "regiond", port, "PORT", control, "CONTROL"}}
	for _, args := range [][]string{
		{"-h"},
		{"now"},
		{"cut"},
		{"cut", "eu-west", "us-east"},
		{"heal", "eu-west", "--quiet"},
		{"--port", "0"},
		{"--port", "65000"},
		{"--log", "testdata/absent/demo.log"},
		{"cut", "eu-west", "--port", port},
		{"--port", port, "heal", "eu-west"},
	} {
		s.run(t, append([]string{"demo"}, args...)...)
	}
	d := startDemo(t, "--quiet", "--log", filepath.Join(t.TempDir(), "demo.log"))
	port = strconv.Itoa(d.port)
	s.replace = []string{cli.HowStarted(), "regiond", port, "PORT"}
	for _, args := range [][]string{
		{"cut", "mars"},
		{"heal", "eu-west"},
		{"cut", "eu-west"},
		{"cut", "eu-west"},
		{"heal", "eu-west"},
	} {
		s.run(t, append([]string{"demo", "--port", port}, args...)...)
	}
	s.compare(t, "demo")
}

// TestDemoPortInUse: any of its ports may be somebody else's; the message names
// that one and the way out, and what was bound already is given back.
func TestDemoPortInUse(t *testing.T) {
	base := demoPorts(t)
	for _, taken := range []int{base, base + demo.AdminOffset + 2, base + demo.ControlOffset} {
		l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(taken)))
		if err != nil {
			t.Fatal(err)
		}
		got := invoke(t, "demo", "--port", strconv.Itoa(base))
		want := fmt.Sprintf("regiond demo: port %d cannot be used: address already in use; "+
			"if a demo runs already end it, or choose other ports, such as --port %d\n", taken, base+100)
		if got.code != cli.ExitUsage || got.stderr != want || got.stdout != "" {
			t.Errorf("with port %d in use: %+v", taken, got)
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		if err := demoPortsFree(t, base); err != nil {
			t.Errorf("after that: %v", err)
		}
	}
}

// TestDemoEndsAtOnce: it may be told to end before it has begun.
func TestDemoEndsAtOnce(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	base := demoPorts(t)
	var screen journal
	if code := dispatch(ctx, []string{"demo", "--port", strconv.Itoa(base)}, &screen, &screen); code != cli.ExitOK {
		t.Errorf("it exits with %d and says\n%s", code, screen.String())
	}
	if err := demoPortsFree(t, base); err != nil {
		t.Errorf("after its end: %v", err)
	}
}
