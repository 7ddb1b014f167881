package limiter

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"reflect"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/regiond/regiond/quota"
)

// TestSealKeepsTickets: what was sealed is opened again, whatever ids and values contain, and by any process that has the
// secret; a ticket has one id.
func TestSealKeepsTickets(t *testing.T) {
	here, there, stranger := NewSeal(), NewSeal(), NewSeal()
	secret := bytes.Repeat([]byte{7}, sha256.Size)
	here.Share(secret)
	there.Share(secret)
	rapid.Check(t, func(t *rapid.T) {
		number := rapid.Int64Range(0, 1<<53-1)
		text := rapid.StringN(0, 40, quota.MaxID)
		want := &ticket{
			heldBy: heldBy(rapid.IntRange(0, int(heldForNothing)).Draw(t, "held by")),
			number: number.Draw(t, "number"), amount: rapid.Int64Range(0, quota.MaxUnits).Draw(t, "amount"),
			goneUS: number.Draw(t, "gone"), overflow: rapid.Bool().Draw(t, "overflow"),
			shared: rapid.Uint64Range(0, 1<<quota.MaxLimits-1).Draw(t, "shared"),
			region: text.Draw(t, "region"), tenant: text.Draw(t, "tenant"), policy: text.Draw(t, "policy"),
		}
		if rapid.Bool().Draw(t, "sampled") {
			want.span = spanID(rapid.SliceOfN(rapid.Byte(), len(want.span), len(want.span)).Draw(t, "span"))
		}
		for range rapid.IntRange(0, 3).Draw(t, "dimensions") {
			want.dims = append(want.dims, quota.Dimension{Name: text.Draw(t, "name"), Value: text.Draw(t, "value")})
		}
		id := here.seal(want)
		if again := here.seal(want); again != id {
			t.Fatalf("one ticket has two ids: %s and %s", id, again)
		}
		got, ok := there.open(id)
		if !ok || !reflect.DeepEqual(got, want) {
			t.Fatalf("opened %+v %v, sealed %+v", got, ok, want)
		}
		if _, ok := stranger.open(id); ok {
			t.Fatal("a process without the secret opens it")
		}
	})
}

// TestSealRefusesWhatIsNotAuthentic: no bit of an id can be changed, and none left out or added.
func TestSealRefusesWhatIsNotAuthentic(t *testing.T) {
	s := NewSeal()
	id := s.seal(&ticket{number: 42, amount: 1000, tenant: "acme", policy: "llm", region: "eu-west"})
	sealed, err := base64.RawURLEncoding.DecodeString(id)
	if err != nil {
		t.Fatal(err)
	}
	refused := func(what, id string) {
		t.Helper()
		if _, ok := s.open(id); ok {
			t.Errorf("%s is opened", what)
		}
	}
	for i := range len(sealed) * 8 {
		other := bytes.Clone(sealed)
		other[i/8] ^= 1 << (i % 8)
		refused("an id with another bit", base64.RawURLEncoding.EncodeToString(other))
	}
	for n := range sealed {
		refused("a beginning", base64.RawURLEncoding.EncodeToString(sealed[:n]))
	}
	refused("an id and a byte", base64.RawURLEncoding.EncodeToString(append(sealed, 0)))
	refused("other text", id+"=")
	refused("nothing", "")
	refused("a long text", strings.Repeat("A", maxSealed+1))
	if strings.Contains(id, "acme") || bytes.Contains(sealed, []byte("acme")) {
		t.Error("the id shows the tenant")
	}
}

// TestTicketsThatAreCutOff are no tickets, but where a ticket may end.
func TestTicketsThatAreCutOff(t *testing.T) {
	whole := (&ticket{number: 300, region: "eu", tenant: "acme", policy: "llm", dims: quota.Dimensions{{Name: "user", Value: "42"}}}).append(nil)
	for n := range whole {
		if got, ok := parseTicket(whole[:n]); ok && !bytes.Equal(got.append(nil), whole[:n]) {
			t.Errorf("%d of %d bytes are read as %+v", n, len(whole), got)
		}
	}
}

// TestSealSharesLater: what this process sealed before it had the secret it still opens.
func TestSealSharesLater(t *testing.T) {
	s := NewSeal()
	id := s.seal(&ticket{tenant: "acme"})
	s.Share([]byte("a secret that came later"))
	if _, ok := s.open(id); !ok {
		t.Error("an id of before is refused")
	}
}

// TestSealedLengths: maxSealed has room for the longest ticket there can be.
func TestSealedLengths(t *testing.T) {
	longest := &ticket{
		number: 1<<53 - 1, amount: quota.MaxUnits, goneUS: 1 << 54, shared: 1<<quota.MaxLimits - 1, heldBy: heldForNothing,
		span:   spanID(bytes.Repeat([]byte{1}, len(spanID{}))),
		region: strings.Repeat("r", quota.MaxName), tenant: strings.Repeat("t", quota.MaxID), policy: strings.Repeat("p", quota.MaxName),
	}
	for range 16 { // httpapi takes no more
		longest.dims = append(longest.dims, quota.Dimension{Name: strings.Repeat("n", quota.MaxName), Value: strings.Repeat("v", quota.MaxID)})
	}
	s := NewSeal()
	id := s.seal(longest)
	if _, ok := s.open(id); !ok || len(id) > maxSealed {
		t.Errorf("an id of %d characters, opened: %v", len(id), ok)
	}
	plain := s.seal(&ticket{
		number: 1<<53 - 1, amount: 4000, goneUS: 1_795_198_405_260_197 + 840e6, region: "eu-west", tenant: "acme", policy: "llm",
	})
	t.Logf("an ordinary id has %d characters", len(plain))
}
