package wire_test

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"math/bits"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/regiond/regiond/quota"
	"github.com/regiond/regiond/sync/wire"
)

// sipHash is SipHash-2-4 as its paper writes it down, byte by byte: the dumb twin.
func sipHash(k0, k1 uint64, text string) uint64 {
	v := [4]uint64{k0 ^ 0x736f6d6570736575, k1 ^ 0x646f72616e646f6d, k0 ^ 0x6c7967656e657261, k1 ^ 0x7465646279746573}
	rounds := func(n int) {
		for range n {
			v[0], v[2] = v[0]+v[1], v[2]+v[3]
			v[1], v[3] = bits.RotateLeft64(v[1], 13)^v[0], bits.RotateLeft64(v[3], 16)^v[2]
			v[0] = bits.RotateLeft64(v[0], 32)
			v[2], v[0] = v[2]+v[1], v[0]+v[3]
			v[1], v[3] = bits.RotateLeft64(v[1], 17)^v[2], bits.RotateLeft64(v[3], 21)^v[0]
			v[2] = bits.RotateLeft64(v[2], 32)
		}
	}
	// Whole words, and a last one that ends with the length.
	padded := text + strings.Repeat("\x00", 7-len(text)%8) + string([]byte{byte(len(text))})
	for ; len(padded) > 0; padded = padded[8:] {
		m := binary.LittleEndian.Uint64([]byte(padded[:8]))
		v[3] ^= m
		rounds(2)
		v[0] ^= m
	}
	v[2] ^= 0xff
	rounds(4)
	return v[0] ^ v[1] ^ v[2] ^ v[3]
}

func TestTwinIsSipHash(t *testing.T) {
	// The example of the paper: key 00…0f, input 00…0e.
	input := make([]byte, 15)
	for i := range input {
		input[i] = byte(i)
	}
	if got := sipHash(0x0706050403020100, 0x0f0e0d0c0b0a0908, string(input)); got != 0xa129ca6149be45e5 {
		t.Errorf("got %x, the paper says a129ca6149be45e5", got)
	}
}

func TestIDIsSipHashUnderAKeyOfItsOwn(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		secret := rapid.SliceOf(rapid.Byte()).Draw(t, "secret")
		cluster := rapid.String().Draw(t, "cluster")
		text := rapid.String().Draw(t, "text")
		source := "regiond partition ids, from secret: " + string(secret)
		if len(secret) == 0 {
			source = "regiond partition ids, from cluster: " + cluster
		}
		sum := sha256.Sum256([]byte(source))
		want := sipHash(binary.LittleEndian.Uint64(sum[:]), binary.LittleEndian.Uint64(sum[8:]), text)
		if got := wire.NewKey(secret, cluster).ID(text); got != want {
			t.Fatalf("ID(%q) = %x, want %x", text, got, want)
		}
	})
}

// Ids are for ever: regions of different versions must agree on them.
func TestIDsAreStable(t *testing.T) {
	const text = "rl:{acme}:t.standard.burst:"
	for _, row := range []struct {
		secret, cluster string
		want            string
	}{
		{"", "", "46bdc9166a31f809"},
		{"", "prod", "162907fd9566d997"},
		{"correct horse battery staple", "prod", "ca13be4da5b35dab"},
		{"correct horse battery staple", "", "ca13be4da5b35dab"}, // a secret is enough
		{"prod", "", "09bdfd2582a295bb"},                         // a secret is not a cluster of that name
	} {
		var id [8]byte
		binary.BigEndian.PutUint64(id[:], wire.NewKey([]byte(row.secret), row.cluster).ID(text))
		if got := hex.EncodeToString(id[:]); got != row.want {
			t.Errorf("secret %q, cluster %q: %s, want %s", row.secret, row.cluster, got, row.want)
		}
	}
}

func TestIDAllocatesNothing(t *testing.T) {
	k := wire.NewKey(nil, "prod")
	text := strings.Repeat("rl:{acme}:", 100)
	var id uint64
	if n := testing.AllocsPerRun(100, func() { id ^= k.ID(text) }); n > 0 {
		t.Errorf("%v allocations", n)
	}
}

// TestCounterID: the id is that of the whole key but for the length of its buckets, and
// costs no allocation.
func TestCounterID(t *testing.T) {
	k := wire.NewKey(nil, "prod")
	key := quota.CounterKey{Tenant: "acme", Policy: "standard", Limit: "sustained", Partition: "user:2.42:", BucketUS: 60_000_000}
	if got, want := k.CounterID(&key), k.ID("acme standard sustained user:2.42:"); got != want {
		t.Errorf("%x, want %x", got, want)
	}
	key.Tenant = strings.Repeat("a", quota.MaxID)
	var id uint64
	if n := testing.AllocsPerRun(100, func() { id ^= k.CounterID(&key) }); n > 0 {
		t.Errorf("%v allocations", n)
	}
}

// A fingerprint is compared between versions, so it is for ever as ids are.
func TestFingerprintTellsKeysApart(t *testing.T) {
	seen := map[uint64]string{0: "no key"}
	for _, row := range []struct{ secret, cluster string }{
		{"", ""}, {"", "prod"}, {"", "test"}, {"prod", ""}, {"correct horse battery staple", "prod"},
	} {
		k := wire.NewKey([]byte(row.secret), row.cluster)
		name := fmt.Sprintf("secret %q, cluster %q", row.secret, row.cluster)
		if other, taken := seen[k.Fingerprint()]; taken {
			t.Errorf("%s has the fingerprint of %s", name, other)
		}
		seen[k.Fingerprint()] = name
		if again := wire.NewKey([]byte(row.secret), row.cluster); again.Fingerprint() != k.Fingerprint() {
			t.Errorf("%s has two fingerprints", name)
		}
	}
	if got := wire.NewKey([]byte("correct horse battery staple"), "x").Fingerprint(); seen[got] != `secret "correct horse battery staple", cluster "prod"` {
		t.Errorf("with a secret the cluster's name changes the fingerprint")
	}
}

func TestKeyIsNotPrinted(t *testing.T) {
	k := wire.NewKey([]byte("secret"), "prod")
	for _, verb := range []string{"%v", "%+v", "%s"} {
		if got := fmt.Sprintf(verb, k); got != "(key)" {
			t.Errorf("%s prints %q", verb, got)
		}
	}
}

func BenchmarkID(b *testing.B) {
	k := wire.NewKey(nil, "prod")
	const text = "rl:{customer-042}:t.standard.sustained:4.user5.alice"
	var id uint64
	b.ReportAllocs()
	for b.Loop() {
		id ^= k.ID(text)
	}
}
