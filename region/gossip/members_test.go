package gossip

import (
	"fmt"
	"log/slog"
	"net"
	"strings"
	"testing"

	"github.com/hashicorp/memberlist"

	"github.com/regiond/regiond/quota"
	"github.com/regiond/regiond/region/members"
)

func testMembers() *table {
	return &table{
		Table: members.New(quota.Process{Region: "r0", Instance: "self", Boot: 1}), known: func(region string) bool { return region != "unknown" },
		refused: func(string) {}, log: slog.New(slog.DiscardHandler),
	}
}

func node(name string, host byte) *memberlist.Node {
	return &memberlist.Node{Name: name, Addr: net.IPv4(10, 0, 0, host), Port: 1, Meta: encodeMeta("h", "v")}
}

func TestMemberOf(t *testing.T) {
	longest := node(nodeName(quota.Process{Region: strings.Repeat("r", 63), Instance: strings.Repeat("i/", 64), Boot: 1 << 62}), 1)
	longest.Meta = append(encodeMeta(strings.Repeat("h", 100), "v 1\n\x07é"+strings.Repeat("v", 100)), "\nof a later version"...)
	m, err := memberOf(longest)
	if err != nil || m.Instance != strings.Repeat("i/", 64) || m.Boot != 1<<62 ||
		len(m.Gossip.ConfigHash) != maxMetaText || !printable(m.Gossip.Version) {
		t.Errorf("the longest: %+v, %v", m, err)
	}
	for _, name := range []string{"", "r1", "r1/a", "r1//5", "/a/5", "r1/a/", "r1/a/0", "r1/a/-1", "r1/a/x", "r1/a\x07/5", "consul-1"} {
		if m, err := memberOf(node(name, 1)); err == nil {
			t.Errorf("the name %q is accepted as %+v", name, m)
		}
	}
	for _, meta := range []string{"", "1", "1\nh", "2\nh\nv", "1\nh\n\x07", "1\n" + strings.Repeat("h", 65) + "\nv", "1\nh\nv\n" + strings.Repeat("x", 512)} {
		n := node("r1/a/5", 1)
		if n.Meta = []byte(meta); testMembers().NotifyAlive(n) == nil {
			t.Errorf("the metadata %q is accepted", meta)
		}
	}
}

// No bytes make memberOf panic, and what it accepts can be shown in a terminal.
func FuzzMemberOf(f *testing.F) {
	f.Add("r1/a/5", encodeMeta("h", "v"))
	f.Fuzz(func(t *testing.T, name string, meta []byte) {
		m, err := memberOf(&memberlist.Node{Name: name, Meta: meta})
		text := m.Gossip.ConfigHash + m.Gossip.Version
		if err == nil && (m.Boot <= 0 || !printable(m.Name()+text) || len(text) > 2*maxMetaText) {
			t.Fatalf("accepted %+v", m)
		}
	})
}

// A later start of an instance replaces one that is dead or had its address; a
// duplicate that is alive elsewhere stays.
func TestLaterStart(t *testing.T) {
	alive := func(name string, host byte) func(*table) {
		return func(ms *table) { ms.NotifyJoin(node(name, host)) }
	}
	dead := func(name string, host byte) func(*table) {
		return func(ms *table) { ms.NotifyLeave(node(name, host)) }
	}
	for _, row := range []struct {
		name  string
		steps []func(*table)
		want  string
	}{
		{"same address", []func(*table){alive("r1/a/5", 1), alive("r1/a/6", 1)}, "6 alive"},
		{"same address, in the other order", []func(*table){alive("r1/a/6", 1), alive("r1/a/5", 1)}, "6 alive"},
		{"elsewhere, after its death", []func(*table){alive("r1/a/5", 1), dead("r1/a/5", 1), alive("r1/a/6", 2)}, "6 alive"},
		{"elsewhere, before its death", []func(*table){alive("r1/a/5", 1), alive("r1/a/6", 2), dead("r1/a/5", 1)}, "6 alive"},
		{"a duplicate", []func(*table){alive("r1/a/5", 1), alive("r1/a/6", 2)}, "5 alive, 6 alive"},
		{"a duplicate that ends", []func(*table){alive("r1/a/5", 1), alive("r1/a/6", 2), dead("r1/a/6", 2)}, "5 alive, 6 dead"},
		{"itself", []func(*table){alive("r0/self/1", 1), alive("r0/self/2", 1)}, "1 alive, 2 alive"},
	} {
		ms := testMembers()
		for _, step := range row.steps {
			step(ms)
		}
		var got []string
		for _, m := range ms.all() {
			got = append(got, fmt.Sprint(m.Boot, " ", m.Gossip.State))
		}
		if strings.Join(got, ", ") != row.want {
			t.Errorf("%s: %v, want %s", row.name, got, row.want)
		}
	}
}

// A sender without a key cannot make a process remember any number of names.
func TestMembersAreBounded(t *testing.T) {
	ms := testMembers()
	for i := range maxMembers {
		n := node(fmt.Sprintf("r1/p%d/5", i), 1)
		if err := ms.NotifyAlive(n); err != nil {
			t.Fatal(err)
		}
		ms.NotifyJoin(n)
	}
	if ms.NotifyAlive(node("r1/another/5", 1)) == nil {
		t.Error("one more is accepted")
	}
	if err := ms.NotifyAlive(node("r1/p0/5", 1)); err != nil {
		t.Errorf("a known one is refused: %v", err)
	}
}
