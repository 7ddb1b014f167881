package gossip

import (
	"math"
	"net"
	"strings"
	"testing"

	"github.com/hashicorp/memberlist"
	"google.golang.org/protobuf/encoding/protowire"
	"pgregory.net/rapid"
)

func anyMeta(t *rapid.T) meta {
	text := rapid.StringN(0, 100, 200)
	return meta{
		boot:       rapid.Int64Range(1, math.MaxInt64).Draw(t, "boot"),
		configHash: text.Draw(t, "hash"), version: text.Draw(t, "version"),
	}
}

// What is said is understood, texts within their bounds; and it always fits.
func TestMetaRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := anyMeta(t)
		b := m.encode()
		if len(b) > 143 {
			t.Fatalf("%d bytes", len(b))
		}
		got, err := decodeMeta(b)
		if err != nil {
			t.Fatal(err)
		}
		want := m
		want.configHash, want.version = clipText(m.configHash), clipText(m.version)
		if got != want {
			t.Fatalf("got %+v, want %+v", got, want)
		}
		if len(m.version) <= maxMetaText && printable(m.version) && got.version != m.version {
			t.Fatalf("version %q became %q", m.version, got.version)
		}
	})
}

// A later version may say more; this one understands the rest.
func TestMetaOfALaterVersion(t *testing.T) {
	b := meta{boot: 7, configHash: "h"}.encode()
	b = protowire.AppendString(protowire.AppendTag(b, 9, protowire.BytesType), "something new")
	b = protowire.AppendFixed64(protowire.AppendTag(b, 10, protowire.Fixed64Type), 1)
	if got, err := decodeMeta(b); err != nil || got != (meta{boot: 7, configHash: "h"}) {
		t.Errorf("got %+v, %v", got, err)
	}
}

func TestMetaThatIsRefused(t *testing.T) {
	good := string(meta{boot: 7, configHash: "h", version: "v"}.encode())
	for name, b := range map[string]string{
		"empty":             "",
		"another format":    "\x02" + good[1:],
		"too long":          good + strings.Repeat("\x4a\x00", 300),
		"cut in a tag":      good + "\x80",
		"cut in a value":    good[:len(good)-1],
		"no start":          "\x01",
		"start of 0":        "\x01\x08\x00",
		"start beyond":      "\x01\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
		"start as text":     "\x01\x0a\x01x",
		"a terminal's bell": good + "\x12\x01\x07",
		"a long text":       good + "\x1a\x41" + strings.Repeat("v", 65),
	} {
		if got, err := decodeMeta([]byte(b)); err == nil {
			t.Errorf("%s: understood as %+v", name, got)
		}
	}
}

// Whatever comes in: no panic, and what is understood is within bounds and says
// the same when it is passed on.
func FuzzDecodeMeta(f *testing.F) {
	f.Add(meta{boot: 7, configHash: "h", version: "v"}.encode())
	f.Add([]byte{1, 8, 1, 0x4a, 0})
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := decodeMeta(b)
		if err != nil {
			if m != (meta{}) {
				t.Fatalf("an error and %+v", m)
			}
			return
		}
		if m.boot <= 0 || len(m.configHash) > maxMetaText || !printable(m.version) {
			t.Fatalf("understood %+v", m)
		}
		again, err := decodeMeta(m.encode())
		if err != nil || again != m {
			t.Fatalf("%+v became %+v, %v", m, again, err)
		}
	})
}

func TestGoodbyeRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := goodbye{boot: rapid.Int64Min(1).Draw(t, "boot"), name: rapid.StringN(1, 192, 192).Draw(t, "name")}
		if got, err := decodeGoodbye(m.encode()); err != nil || got != m {
			t.Fatalf("got %+v, %v, want %+v", got, err, m)
		}
	})
}

// A goodbye changes the member whose name and boot it has, for good, and nobody else.
func TestGoodbye(t *testing.T) {
	r := testRoster(t, at("self", 1, Alive), at("r1", 2, Alive), at("r2", 3, Dead))
	for _, g := range []goodbye{{name: "self/a"}, {name: "r1/a", boot: 1}, {name: "r9/a"}, {}} {
		r.left(g)
	}
	if r.members["self/a"].State != Alive || r.members["r1/a"].State != Alive || len(r.members) != 3 {
		t.Errorf("members are %v", r.all())
	}
	r.left(goodbye{name: "r1/a"})
	r.left(goodbye{name: "r2/a"}) // overtaken by the news of its end
	if r.members["r1/a"].State != Left || r.members["r2/a"].State != Left {
		t.Errorf("members are %v", r.all())
	}
	node := &memberlist.Node{Name: "r1/a", Addr: net.IPv4(10, 0, 0, 2), Port: 1}
	for boot, want := range map[int64]State{5: Left, 6: Alive} {
		r.put(Member{Region: "r1", Instance: "a", Boot: 5, State: Left})
		node.Meta = meta{boot: boot}.encode()
		if r.heard(node); r.members["r1/a"].State != want {
			t.Errorf("heard of boot %d after the goodbye of 5: %v, want %v", boot, r.members["r1/a"].State, want)
		}
	}
}

// Whatever comes in: no panic, and what is understood is passed on as it was.
func FuzzDecodeGoodbye(f *testing.F) {
	f.Add(goodbye{boot: 7, name: "r1/a"}.encode())
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := decodeGoodbye(b)
		if err != nil {
			return
		}
		if again, err := decodeGoodbye(m.encode()); err != nil && len(m.name) < 480 || err == nil && again != m {
			t.Fatalf("%+v became %+v, %v", m, again, err)
		}
	})
}
