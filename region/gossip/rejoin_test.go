package gossip

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/memberlist"
	"go.opentelemetry.io/otel/metric/noop"
)

// calls is a network of which it is known who was called and looked up.
type calls struct {
	mu     sync.Mutex
	joined []string
	looked []string
	hang   string // never answers in time
}

func (c *calls) join(addr string) error {
	c.mu.Lock()
	c.joined = append(c.joined, addr)
	c.mu.Unlock()
	if addr == c.hang {
		time.Sleep(time.Hour)
		return errors.New("timeout")
	}
	return nil
}

func (c *calls) lookup(_ context.Context, host string) ([]net.IP, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if ip := net.ParseIP(host); ip != nil {
		return []net.IP{ip}, nil
	}
	c.looked = append(c.looked, host)
	if host != "two.example" {
		return nil, errors.New("no such host")
	}
	return []net.IP{net.IPv4(10, 0, 0, 1), net.IPv4(10, 0, 0, 2)}, nil
}

func (c *calls) take() (joined, looked []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	joined, looked = c.joined, c.looked
	c.joined, c.looked = nil, nil
	slices.Sort(joined)
	return joined, looked
}

func testRoster(t *testing.T, members ...Member) *roster {
	t.Helper()
	m, err := newMetrics(noop.Meter{})
	if err != nil {
		t.Fatal(err)
	}
	r := newRoster("r0/self", func(string) bool { return true }, m)
	for _, m := range members {
		r.put(m)
	}
	return r
}

func at(name string, i int, state State) Member {
	return Member{Region: name, Instance: "a", Addr: fmt.Sprintf("10.0.0.%d:1", i), State: state, Self: name == "self"}
}

// Each row is one round.
func TestWhoIsCalled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		net := &calls{}
		var log bytes.Buffer
		r := testRoster(t, at("self", 9, Alive))
		c := newCaller(r, r.metrics, slog.New(slog.NewTextHandler(&log, nil)), net.join)
		c.lookup = net.lookup
		for i, row := range []struct {
			heard          []Member
			seeds          []string
			everybody      bool
			joined, looked []string
			log            string
		}{
			// A name with two addresses, ourselves, a name that does not resolve. Each
			// is called twice as long as it is not seen alive.
			{
				seeds:  []string{"two.example:1", "10.0.0.9:1", "none.example:1"},
				joined: []string{"10.0.0.1:1", "10.0.0.1:1", "10.0.0.2:1", "10.0.0.2:1"},
				looked: []string{"two.example", "none.example"}, log: "no such host",
			},
			// One of the two is there: the name is looked up again, for the other.
			{
				heard: []Member{at("r1", 1, Alive)}, seeds: []string{"two.example:1"},
				joined: []string{"10.0.0.2:1", "10.0.0.2:1"}, looked: []string{"two.example"},
			},
			// Both are: nobody is asked anything.
			{heard: []Member{at("r2", 2, Alive)}, seeds: []string{"two.example:1"}},
			// The dead are called though they are no seeds; those who left are not.
			{
				heard: []Member{at("r3", 3, Dead), at("r4", 4, Left)}, seeds: []string{"two.example:1"},
				joined: []string{"10.0.0.3:1", "10.0.0.3:1"},
			},
			// When others may not know us, everybody is called; once, as they are alive.
			{everybody: true, joined: []string{"10.0.0.1:1", "10.0.0.2:1", "10.0.0.3:1", "10.0.0.3:1"}},
			{seeds: []string{"no address"}, joined: []string{"10.0.0.3:1", "10.0.0.3:1"}, log: "must be host:port"},
		} {
			for _, m := range row.heard {
				r.put(m)
			}
			log.Reset()
			c.round(t.Context(), row.seeds, row.everybody)
			c.wait()
			joined, looked := net.take()
			slices.Sort(looked)
			slices.Sort(row.looked)
			if !slices.Equal(joined, row.joined) || !slices.Equal(looked, row.looked) {
				t.Errorf("round %d: called %v, looked up %v; want %v, %v", i, joined, looked, row.joined, row.looked)
			}
			if got := log.String(); (row.log == "") != (got == "") || !strings.Contains(got, row.log) {
				t.Errorf("round %d: log %q, want %q", i, got, row.log)
			}
		}
	})
}

// One that does not answer delays nobody, and is not called again meanwhile.
func TestOneThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		net := &calls{hang: "10.0.0.1:1"}
		r := testRoster(t)
		c := newCaller(r, r.metrics, slog.New(slog.DiscardHandler), net.join)
		seeds := []string{"10.0.0.1:1", "10.0.0.2:1"}
		for i := range 3 {
			c.round(t.Context(), seeds, false)
			time.Sleep(RejoinInterval)
			want := []string{"10.0.0.2:1", "10.0.0.2:1"}
			if i == 0 {
				want = append([]string{"10.0.0.1:1"}, want...)
			}
			if got, _ := net.take(); !slices.Equal(got, want) {
				t.Errorf("round %d: called %v, want %v", i, got, want)
			}
		}
		c.wait()
	})
}

// Whoever can send us anything cannot make us remember any number of names.
func TestRosterIsBounded(t *testing.T) {
	r := testRoster(t)
	node := func(i int) *memberlist.Node {
		return &memberlist.Node{Name: fmt.Sprintf("r1/p%d", i), Addr: net.IPv4(10, 0, 0, 1), Port: 1, Meta: meta{boot: 1}.encode()}
	}
	for i := range maxMembers {
		if err := r.NotifyAlive(node(i)); err != nil {
			t.Fatal(err)
		}
		r.NotifyJoin(node(i))
	}
	if r.NotifyAlive(node(maxMembers)) == nil {
		t.Error("one more is let in")
	}
	if err := r.NotifyAlive(node(0)); err != nil {
		t.Errorf("one who is known is refused: %v", err)
	}
	if len(r.takeNews()) != maxNews || len(r.all()) != maxMembers {
		t.Errorf("%d members", len(r.all()))
	}
	for name, bad := range map[string]*memberlist.Node{
		"no metadata":  {Name: "r1/x"},
		"no instance":  {Name: "r1/", Meta: meta{boot: 1}.encode()},
		"another name": {Name: "consul-1", Meta: meta{boot: 1}.encode()},
	} {
		if r.NotifyAlive(bad) == nil {
			t.Errorf("%s: let in", name)
		}
	}
}

// The library's complaints are warnings, one of a kind a minute; its chatter is
// for debugging.
func TestJournal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		r := testRoster(t)
		j := newJournal(slog.New(slog.NewTextHandler(&out, nil)), r.metrics)
		library := slog.NewLogLogger(j, slog.LevelDebug)
		for i := range 100 {
			library.Printf("[ERR] memberlist: Failed to send gossip to 10.0.0.%d:7946: no route", i)
			library.Printf("[DEBUG] memberlist: Initiating push/pull sync with: x %d", i)
			time.Sleep(s)
		}
		library.Print("[WARN] memberlist: Refuting a suspect message (from: r1/a)")
		library.Print("neither level nor name")
		var got []string
		for line := range strings.Lines(out.String()) {
			_, text, _ := strings.Cut(line, " level=")
			got = append(got, text)
		}
		want := []string{
			`WARN msg="gossip: Failed to send gossip to 10.0.0.0:7946: no route"` + "\n",
			`WARN msg="gossip: Failed to send gossip to 10.0.0.60:7946: no route" skipped=59` + "\n",
			`WARN msg="gossip: Refuting a suspect message (from: r1/a)"` + "\n",
		}
		if !slices.Equal(got, want) {
			t.Errorf("log is\n%s\nwant\n%s", got, want)
		}
	})
}

const s = time.Second
