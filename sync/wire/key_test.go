package wire_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/regiond/regiond/quota"
	"github.com/regiond/regiond/sync/wire"
)

// Ids and fingerprints are for ever: regions of different versions must agree on them. The
// golden ids are those of a SipHash-2-4 written down from its paper.
func TestIDsAreStable(t *testing.T) {
	key := quota.CounterKey{Tenant: "acme", Policy: "standard", Limit: "burst", Partition: "user:2.42:", WindowUS: minute}
	fingerprints, loans := make(map[uint64]string), make(map[uint64]bool)
	for _, row := range []struct {
		secret, cluster string
		want            string
	}{
		{"", "", "3f0bb3f878a3e9ef"},
		{"", "prod", "e29c1929f4f9149a"},
		{"correct horse battery staple", "prod", "6611dafacafd1ac2"},
		{"correct horse battery staple", "", "6611dafacafd1ac2"}, // a secret is enough
		{"prod", "", "c7bdbf42b627844d"},                         // a secret is not a cluster of that name
	} {
		k := wire.NewKey([]byte(row.secret), row.cluster)
		key.WindowUS++ // is not part of the id of a counter, and of that of loans
		if id := k.LoansID(&key); loans[id] || id == k.CounterID(&key) {
			t.Errorf("window %d: another one has the same loans", key.WindowUS)
		} else {
			loans[id] = true
		}
		if got := fmt.Sprintf("%016x", k.CounterID(&key)); got != row.want {
			t.Errorf("secret %q, cluster %q: %s, want %s", row.secret, row.cluster, got, row.want)
		}
		if other := fingerprints[k.Fingerprint()]; k.Fingerprint() == 0 || other != "" && other != row.want {
			t.Errorf("secret %q, cluster %q: its fingerprint is that of another key", row.secret, row.cluster)
		}
		fingerprints[k.Fingerprint()] = row.want
	}
	if len(fingerprints) != 4 {
		t.Errorf("%d fingerprints of 4 keys", len(fingerprints))
	}
}

func TestCounterIDAllocatesNothing(t *testing.T) {
	k := wire.NewKey(nil, "prod")
	key := quota.CounterKey{Tenant: strings.Repeat("a", quota.MaxID), Policy: "standard", Limit: "sustained", Partition: "user:2.42:"}
	var id uint64
	if n := testing.AllocsPerRun(100, func() { id ^= k.CounterID(&key) }); n > 0 {
		t.Errorf("%v allocations", n)
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
