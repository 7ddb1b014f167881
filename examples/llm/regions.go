package main

import (
	"context"
	"crypto/rand"
	_ "embed"
	"encoding/base64"
	"encoding/json"
	"fmt"
	dice "math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"text/template"
	"time"
)

// regions are two processes of regiond on this machine.
type regions struct {
	urls      []string // of their data listeners
	processes []*exec.Cmd
}

var names = []string{"eu-west", "us-east"}

//go:embed topology.yaml
var topology string

// startRegions builds regiond and starts two regions in a folder. It returns when each sees the other.
func startRegions(ctx context.Context, folder string) (*regions, error) {
	program := filepath.Join(folder, "regiond")
	build := exec.CommandContext(ctx, "go", "build", "-o", program, "github.com/regiond/regiond/cmd/regiond")
	if out, err := build.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("build regiond: %w: %s", err, out)
	}
	ports, err := freePorts(ctx, 8)
	if err != nil {
		return nil, err
	}
	file, err := writeTopology(folder, ports)
	if err != nil {
		return nil, err
	}
	r := &regions{urls: []string{url(ports[0]), url(ports[4])}}
	for _, name := range names {
		p := exec.CommandContext(ctx, program, "serve", "--config", file, "--region", name)
		if p.Stderr, err = os.Create(filepath.Join(folder, name+".log")); err == nil {
			err = p.Start()
		}
		if err != nil {
			r.stop()
			return nil, fmt.Errorf("start %s: %w", name, err)
		}
		r.processes = append(r.processes, p)
	}
	for i, u := range r.urls {
		if err := awaitGlobal(ctx, u); err != nil {
			text, _ := os.ReadFile(filepath.Join(folder, names[i]+".log")) // it says why
			r.stop()
			return nil, fmt.Errorf("%s does not see the other region: %w\n%s", names[i], err, text)
		}
	}
	return r, nil
}

// stop ends the processes and waits for them.
func (r *regions) stop() {
	for _, p := range r.processes {
		_ = p.Process.Signal(os.Interrupt) // it may have ended
	}
	for _, p := range r.processes {
		_ = p.Wait()
	}
}

func url(port int) string { return fmt.Sprintf("http://127.0.0.1:%d", port) }

func writeTopology(folder string, ports []int) (file string, err error) {
	key := make([]byte, 32)
	_, _ = rand.Read(key) // never fails
	keyFile := filepath.Join(folder, "key")
	if err := os.WriteFile(keyFile, []byte(base64.StdEncoding.EncodeToString(key)), 0o600); err != nil {
		return "", err
	}
	file = filepath.Join(folder, "topology.yaml")
	f, err := os.Create(file)
	if err != nil {
		return "", err
	}
	t, err := template.New("topology").Parse(topology)
	if err == nil {
		err = t.Execute(f, struct {
			Ports []int
			Key   string
		}{ports, keyFile})
	}
	if closed := f.Close(); err == nil {
		err = closed
	}
	return file, err
}

// freePorts are ports of 127.0.0.1 that were free a moment ago. They lie below those that Linux gives to clients, one of which
// could have such a port before the region that it is for.
func freePorts(ctx context.Context, n int) ([]int, error) {
	var ports []int
	for attempt := 0; len(ports) < n; attempt++ {
		port := 22_000 + dice.IntN(10_000)
		l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", fmt.Sprintf("127.0.0.1:%d", port))
		switch {
		case err == nil:
			defer l.Close() // all at the end, so that they differ
			ports = append(ports, port)
		case attempt > 100:
			return nil, err
		}
	}
	return ports, nil
}

// awaitGlobal waits until a region counts with the other one.
func awaitGlobal(ctx context.Context, regiond string) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for {
		var d struct{ Mode string }
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, regiond+"/v1/usage/acme", nil)
		if err != nil {
			return err
		}
		if resp, err := http.DefaultClient.Do(req); err == nil {
			err = json.NewDecoder(resp.Body).Decode(&d)
			resp.Body.Close()
			if err == nil && d.Mode == "global" {
				return nil
			}
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(100 * time.Millisecond):
		}
	}
}
