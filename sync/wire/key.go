package wire

import (
	"crypto/sha256"
	"encoding/binary"
	"unsafe"

	"github.com/dchest/siphash"

	"github.com/regiond/regiond/quota"
)

// Key turns the text of a partition into the number that stands for it between
// regions. All regions of a deployment need the same one. It is a value: copy it,
// use it from any goroutine.
type Key struct {
	k0, k1 uint64
}

// NewKey derives the key from the deployment's secret or, when that is empty,
// from the name of the cluster.
//
// Names of tenants never leave their region in clear. With a secret nobody else
// can tell which partition an id is. With a key from the cluster's name, whoever
// listens and knows or guesses that name can test guesses of a tenant's name, one
// hash each: then ids are short, not secret.
func NewKey(secret []byte, cluster string) Key {
	// The labels keep the two kinds of key apart, and both apart from whatever else
	// is derived from the same secret.
	text := append([]byte("regiond partition ids, from secret: "), secret...)
	if len(secret) == 0 {
		text = append([]byte("regiond partition ids, from cluster: "), cluster...)
	}
	sum := sha256.Sum256(text)
	return Key{k0: binary.LittleEndian.Uint64(sum[:8]), k1: binary.LittleEndian.Uint64(sum[8:16])}
}

// CounterID returns the id of a partition under a limit: SipHash-2-4 of
// quota.CounterKey.AppendID. Two of a million ids are equal once in 37 million
// deployments; their counters are then added. It allocates nothing for a text of up
// to 512 bytes, which is any but that of the longest names and values.
func (k Key) CounterID(c *quota.CounterKey) uint64 {
	var room [512]byte
	return siphash.Hash(k.k0, k.k1, c.AppendID(room[:0]))
}

// ID is SipHash-2-4 of a text. It allocates nothing.
func (k Key) ID(text string) uint64 {
	// Hash reads the bytes and keeps nothing; a conversion would copy them.
	return siphash.Hash(k.k0, k.k1, unsafe.Slice(unsafe.StringData(text), len(text)))
}

// fingerprinted is the text that stands for a key in Fingerprint. No partition has it.
const fingerprinted = "regiond partition key"

// Fingerprint tells keys apart without telling them: two processes with the same one
// have the same ids. It is never 0, which stands for a process that does not say.
func (k Key) Fingerprint() uint64 {
	return max(1, k.ID(fingerprinted))
}

// String hides the key from logs.
func (Key) String() string {
	return "(key)"
}
