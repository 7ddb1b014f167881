//go:build compose

package compose

import (
	"encoding/json"
	"fmt"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"
)

// cut is what was taken off the WAN, and how it was on it.
type cut struct {
	p         *project
	asked     time.Time
	endpoints map[string]endpoint // by container
}

// endpoint is how a container is attached to a network.
type endpoint struct {
	IPAddress string
	Aliases   []string
}

// cut takes containers off the WAN, all at once.
func (p *project) cut(t *testing.T, services ...string) *cut {
	t.Helper()
	c := &cut{p: p, endpoints: map[string]endpoint{}}
	for _, s := range services {
		id := p.container(t, s)
		var networks map[string]endpoint
		if err := json.Unmarshal([]byte(p.docker(t, "inspect", "--format", "{{json .NetworkSettings.Networks}}", id)), &networks); err != nil {
			t.Fatal(err)
		}
		c.endpoints[id] = networks[p.wan()]
	}
	c.asked = time.Now()
	c.each(t, func(id string, _ endpoint) []string { return []string{"network", "disconnect", p.wan(), id} })
	return c
}

// reconnect puts them back under the names and addresses that they had, as
// Compose would.
func (c *cut) reconnect(t *testing.T) {
	t.Helper()
	c.each(t, func(id string, e endpoint) []string {
		args := []string{"network", "connect", "--ip", e.IPAddress}
		for _, a := range e.Aliases {
			args = append(args, "--alias", a)
		}
		return append(args, c.p.wan(), id)
	})
}

// each runs one command of the engine for each container, all at once.
func (c *cut) each(t *testing.T, args func(id string, e endpoint) []string) {
	t.Helper()
	var all sync.WaitGroup
	results := make(chan error, len(c.endpoints))
	for id, e := range c.endpoints {
		cmd := exec.CommandContext(c.p.ctx, "docker", args(id, e)...)
		all.Go(func() {
			if out, err := cmd.CombinedOutput(); err != nil {
				results <- fmt.Errorf("%s: %w: %s", strings.Join(cmd.Args, " "), err, out)
			}
		})
	}
	all.Wait()
	close(results)
	for err := range results {
		t.Fatal(err)
	}
}

func (p *project) wan() string { return p.name + "_wan" }
