package daemon

import (
	"bytes"
	"encoding/base64"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/regiond/regiond/internal/status"
	"github.com/regiond/regiond/quota"
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

// sum is the sum of a counter's series.
func (p *node) sum(name string) (sum float64) {
	p.w.t.Helper()
	families, err := p.Metrics().Gather()
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
// before stays known, and whoever has the former key alone is out of sight at the end.
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

// TestWorldOtherPartitions: a region whose ids are made with another key is received and not
// counted on, and whoever looks is told which process it is and what to do. A reload does not
// bring that about.
func TestWorldOtherPartitions(t *testing.T) {
	t.Parallel()
	inWorld(t, worldOf(900, time.Hour, ""), func(w *world) {
		w.regions[2].write(keyLine(1) + "partitions " + keyLine(3))
		for _, s := range w.regions {
			s.start("one")
		}
		time.Sleep(5 * time.Second)
		for i, s := range w.regions {
			p := s.one()
			if p.mode() != quota.ModePartitioned {
				t.Errorf("%s is in mode %v, want partitioned", s.name, p.mode())
			}
			other := w.regions[2]
			if i == 2 {
				other = w.regions[0]
			}
			const says = "process one has another key of partitions"
			for _, r := range p.Daemon.regions().(status.Report).Regions {
				if r.Region == other.name && !strings.Contains(r.Text, says) {
					t.Errorf("of %s, %s reports %q, want %q", other.name, s.name, r.Text, says)
				}
			}
			if !strings.Contains(p.log.String(), says) {
				t.Errorf("the log of %s does not say %q:\n%s", s.name, says, p.log)
			}
		}
		for w.regions[0].one().ask(1).Allowed {
		}
		if d, _ := w.regions[2].one().explained("acme"); d.Limits[0].Remaining != 300 {
			t.Errorf("the region with a key of its own may use %d, want its part of 300", d.Limits[0].Remaining)
		}
		if d, _ := w.regions[0].one().explained("acme"); d.Limits[0].Ceiling != 600 {
			t.Errorf("the others may use %d together, want their parts of 600", d.Limits[0].Ceiling)
		}
		w.regions[0].write(keyLine(2))
		if err := w.regions[0].one().tryReload(); err == nil || !strings.Contains(err.Error(), `begins with "partitions "`) {
			t.Errorf("a reload that forgets the key of partitions: %v", err)
		}
	})
}

// TestWorldStrangers: a process with another key is not received, and changes nothing.
func TestWorldStrangers(t *testing.T) {
	t.Parallel()
	inWorld(t, worldOf(900, time.Hour, ""), func(w *world) {
		w.regions[2].write(keyLine(2))
		for _, s := range w.regions {
			s.start("one")
		}
		w.regions[2].one().ask(100)
		time.Sleep(5 * time.Second)
		for _, s := range w.regions {
			p := s.one()
			for _, peer := range p.replication.members.Others() {
				if peer.ReceivedAt != 0 && (peer.Region == w.regions[2].name || s == w.regions[2]) {
					t.Errorf("%s receives %+v", s.name, peer)
				}
			}
			if s != w.regions[2] && p.estimate(w.regions[2]) != 0 {
				t.Errorf("%s counts what a stranger has used", s.name)
			}
			if n := p.sum("regiond_sync_refused_total"); n == 0 {
				t.Errorf("%s refused nothing", s.name)
			}
		}
	})
}
