//go:build compose

package compose

import (
	"os/exec"
	"testing"

	"github.com/goccy/go-yaml"
)

// TestBounds: no container can take the machine's memory or its processes from the others,
// or write to its own image.
func TestBounds(t *testing.T) {
	args := append(tool(t)[1:], "--file", "../../docker-compose.multi.yml", "--profile", "gateways", "--profile", "observe", "config")
	out, err := exec.Command(tool(t)[0], args...).Output()
	if err != nil {
		t.Fatal(err)
	}
	var file struct {
		Services map[string]struct {
			Memory   any      `yaml:"mem_limit"`
			PIDs     int      `yaml:"pids_limit"`
			ReadOnly bool     `yaml:"read_only"`
			Drop     []string `yaml:"cap_drop"`
		}
	}
	if err := yaml.Unmarshal(out, &file); err != nil {
		t.Fatal(err)
	}
	if len(file.Services) != 15 {
		t.Errorf("%d services, want 15: regiond, Redis, NATS and nginx of three regions, Prometheus, Grafana and Jaeger", len(file.Services))
	}
	for name, s := range file.Services {
		if s.Memory == nil || s.PIDs <= 0 || !s.ReadOnly || len(s.Drop) == 0 {
			t.Errorf("%s: %+v, want all of it bounded", name, s)
		}
	}
}
