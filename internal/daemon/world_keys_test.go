package daemon

import (
	"bytes"
	"encoding/base64"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/regiond/regiond/quota"
	"github.com/regiond/regiond/region"
)

func keyLine(b byte) string {
	return base64.StdEncoding.EncodeToString(bytes.Repeat([]byte{b}, 32)) + "\n"
}

func (s *nodeRegion) keyFile() string { return filepath.Join(s.w.keys, s.name) }

// write writes the key file of a region.
func (s *nodeRegion) write(content string) {
	s.w.t.Helper()
	if err := os.WriteFile(s.keyFile(), []byte(content), 0o600); err != nil {
		s.w.t.Fatal(err)
	}
}

// keep writes the key files of all regions.
func (w *world) keep(content string) {
	w.t.Helper()
	for _, s := range w.regions {
		s.write(content)
	}
}

// reload has the process go by the world's present file.
func (p *node) reload() {
	p.w.t.Helper()
	if err := p.tryReload(); err != nil {
		p.w.t.Fatal(err)
	}
}

func (p *node) tryReload() error {
	top, _, err := region.Parse("topology.yaml", []byte(p.w.text))
	if err != nil {
		return err
	}
	return p.apply(top)
}

// sum is the sum of a counter's series.
func (p *node) sum(name string) (sum float64) {
	p.w.t.Helper()
	families, err := p.telemetry.Registry().Gather()
	if err != nil {
		p.w.t.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			if f.GetName() == name {
				sum += m.GetCounter().GetValue()
			}
		}
	}
	return sum
}

// TestWorldKeysAreReplaced: the shared key is replaced in three steps, region by region, while
// all admit. Everybody goes on counting on everybody, no message is refused, what was used
// before stays known, and a region with the former key alone is out of sight at the end. A reload
// does not change the ids of partitions.
func TestWorldKeysAreReplaced(t *testing.T) {
	t.Parallel()
	inWorld(t, worldOf(9000, time.Hour, ""), func(w *world) {
		w.startAll()
		old := w.text
		used := map[*nodeRegion]int64{}
		for _, step := range []string{
			keyLine(1) + keyLine(2) + "partitions " + keyLine(1),
			keyLine(2) + keyLine(1) + "partitions " + keyLine(1),
			keyLine(2) + "partitions " + keyLine(1),
		} {
			for _, s := range w.regions {
				s.write(step)
				s.one().reload()
				for _, of := range w.regions {
					of.one().ask(10)
					used[of] += 10
				}
				for range 20 { // gossip exchanges, and heartbeats
					time.Sleep(time.Second)
					if !w.global() {
						t.Fatalf("after %s has %d lines, not all count on each other", s.name, strings.Count(step, "\n"))
					}
				}
				for _, who := range w.regions {
					for _, whose := range w.regions {
						if who == whose {
							continue
						}
						if n := who.one().estimate(whose); n != used[whose] {
							t.Fatalf("%s knows %d of what %s has used, want %d", who.name, n, whose.name, used[whose])
						}
					}
				}
			}
		}
		for _, p := range w.alive {
			if n := p.sum("regiond_sync_refused_total"); n != 0 {
				t.Errorf("%s refused %v messages", p.home.name, n)
			}
			if n := p.sum("regiond_gossip_refused_total"); n != 0 {
				t.Errorf("gossip of %s refused %v messages", p.home.name, n)
			}
			if s := p.log.String(); strings.Contains(s, "need a restart") {
				t.Errorf("%s asks for a restart:\n%s", p.home.name, s)
			}
		}
		eu, us := w.regions[0], w.regions[1]
		eu.write(keyLine(2))
		if err := eu.one().tryReload(); err == nil || !strings.Contains(err.Error(), `begins with "partitions "`) {
			t.Errorf("a reload that forgets the key of partitions: %v", err)
		}
		eu.one().stop()
		eu.write(keyLine(1))
		w.text = old
		eu.start("one")
		time.Sleep(5 * time.Second)
		if eu.one().mode() != quota.ModePartitioned || us.one().mode() != quota.ModePartitioned {
			t.Errorf("with the former key alone: %v and %v", eu.one().mode(), us.one().mode())
		}
		if n := us.one().sum("regiond_sync_refused_total"); n == 0 {
			t.Error("nothing was refused")
		}
	})
}
