package wire

import (
	"crypto/sha256"
	"encoding/binary"

	"github.com/dchest/siphash"

	"github.com/regiond/regiond/quota"
)

// Key turns a partition into the number that stands for it between regions. All regions
// of a deployment need the same one. It is a value: copy it, use it from any goroutine.
type Key struct {
	k0, k1 uint64
}

// NewKey derives the key from the deployment's secret or, when that is empty, from the
// name of the cluster. Names of tenants never leave their region in clear: with a secret
// nobody else can find the partition of an id. With a key from the cluster's name, anybody
// who listens and knows that name can test guesses of a tenant's name, one hash each.
func NewKey(secret []byte, cluster string) Key {
	// The labels separate the two kinds of key, and both from whatever else is derived from
	// the same secret.
	text := append([]byte("regiond partition ids, from secret: "), secret...)
	if len(secret) == 0 {
		text = append([]byte("regiond partition ids, from cluster: "), cluster...)
	}
	sum := sha256.Sum256(text)
	return Key{k0: binary.LittleEndian.Uint64(sum[:8]), k1: binary.LittleEndian.Uint64(sum[8:16])}
}

// CounterID returns the id of a partition under a limit: SipHash-2-4 of
// quota.CounterKey.AppendID. Two of a million ids are equal once in 37 million
// deployments; their counters are then added. It allocates nothing for a text of up to
// 512 bytes, which is any but that of the longest names and values.
func (k Key) CounterID(c *quota.CounterKey) uint64 {
	var text [512]byte
	return siphash.Hash(k.k0, k.k1, c.AppendID(text[:0]))
}

// LoansID is the same of quota.CounterKey.AppendLoansID.
func (k Key) LoansID(c *quota.CounterKey) uint64 {
	var text [512]byte
	return siphash.Hash(k.k0, k.k1, c.AppendLoansID(text[:0]))
}

// Fingerprint identifies the key without revealing it: two processes with the same one
// have the same ids. It is never 0, which stands for an unknown key.
func (k Key) Fingerprint() uint64 {
	return max(1, siphash.Hash(k.k0, k.k1, []byte("regiond partition key"))) // no partition has this text
}

// String hides the key from logs.
func (Key) String() string { return "(key)" }
