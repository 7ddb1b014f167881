package daemon

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/regiond/regiond/test/capture"
)

// perHour is a file of domain edge with that limit for each user.
func perHour(units int) string {
	return strings.Replace(strings.Replace(threeAnHour, "DOMAIN", "edge", 1), "_unit: 3}", fmt.Sprintf("_unit: %d}", units), 1)
}

// limitInForce waits until the file of domain edge with that limit is in force.
func (g gateway) limitInForce(t *testing.T, units uint32) {
	t.Helper()
	capture.Eventually(t, func() error {
		a, err := g.ask(t, "edge", "nobody", "")
		if err != nil {
			t.Fatal(err)
		}
		if got := a.GetStatuses()[0].GetCurrentLimit().GetRequestsPerUnit(); got != units {
			return fmt.Errorf("the limit in force is %d, not %d", got, units)
		}
		return nil
	})
}

// TestWhatIsNoFile: where a file is replaced by half of one, or by what nobody writes to, the old content
// stays in force, the log says so, and the next file is read. Usage is kept.
func TestWhatIsNoFile(t *testing.T) {
	dir := t.TempDir()
	p := start(t, withDomains(t, dir, inMemory(), map[string]string{"edge": ""}), "--grpc", "127.0.0.1:0")
	g := p.gateway(t, nil)
	at := func(name string) string { return filepath.Join(dir, name) }
	units := uint32(3)
	for i, row := range []struct {
		what, says string
		make       func(at string) error
	}{
		{"half of one", "edge.yaml:3:", func(at string) error { return os.WriteFile(at, []byte(perHour(1)[:70]), 0o600) }},
		{"a FIFO", "edge.yaml: it is a FIFO", func(at string) error { return syscall.Mkfifo(at, 0o600) }},
	} {
		odd := at(fmt.Sprint("odd", i))
		if err := row.make(odd); err != nil {
			t.Fatal(err)
		}
		link(t, odd, at("edge.yaml"))
		line := p.log.Await(t, "reload: the configuration in force stays", i+1)
		if why := fmt.Sprint(line["error"]); !strings.Contains(why, row.says) {
			t.Errorf("%s: the log says %s", row.what, why)
		}
		a, err := g.ask(t, "edge", "acme", "") // what it has used is kept: one more of one more
		if s := a.GetStatuses(); err != nil || s[0].GetCurrentLimit().GetRequestsPerUnit() != units || s[0].GetLimitRemaining() != 2 {
			t.Errorf("%s: %v, %v", row.what, a, err)
		}
		units++
		put(t, at("edge.yaml"), perHour(int(units)))
		g.limitInForce(t, units)
	}
}

// TestMistakeInANewFile: a file that only the topology with a mistake in it names is read again once it is mended.
func TestMistakeInANewFile(t *testing.T) {
	p := start(t, inMemory(), "--grpc", "127.0.0.1:0")
	g := p.gateway(t, nil)
	file := filepath.Join(t.TempDir(), "edge.yaml")
	write(t, file, perHour(0)[:70])
	put(t, p.file, inMemory()+fmt.Sprintf("rls: {domains: {edge: {file: %q}}}\n", file))
	p.log.Await(t, "reload: the configuration in force stays", 1)
	put(t, file, perHour(7))
	g.limitInForce(t, 7)
}
