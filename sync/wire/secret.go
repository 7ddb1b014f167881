package wire

import (
	"bytes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"hash"
	"slices"
	"strconv"
	"strings"

	"github.com/dchest/siphash"
	"golang.org/x/crypto/chacha20poly1305"

	"github.com/regiond/regiond/quota"
)

const (
	macLength = 16   // of HMAC-SHA-256: nobody guesses one of 2^128
	macTag    = 0x22 // Envelope.mac

	// maxPartition bounds the text of a partition that was sealed: that of the longest names
	// and values has a few thousand bytes.
	maxPartition = 16 << 10
	// MaxPayload bounds the payload of a Top, compressed 128 KiB and a little, and of Overrides.
	MaxPayload = 192 << 10
)

// Secret authenticates messages, and seals what only our own processes may read. All of
// them share it. It has one key that it uses, and may have more that it accepts, so that a
// key can be replaced while messages travel. It is not safe for concurrent use.
type Secret struct {
	keys []secretKey // the first is used
	mac  [sha256.Size]byte
}

// secretKey is what is derived from one shared key, each for one purpose.
type secretKey struct {
	mac  hash.Hash
	seal cipher.AEAD
}

// NewSecret derives a Secret from shared keys, the one to use first, for one cluster. With
// no key it is derived from the name of the cluster: then it tells messages of clusters
// apart, and anybody can write them.
func NewSecret(shared [][]byte, cluster string) (*Secret, error) {
	purpose := "regiond bus v1, "
	if len(shared) == 0 {
		shared, purpose = [][]byte{[]byte(cluster)}, purpose+"without a key, "
	}
	s := &Secret{}
	for _, key := range shared {
		mac, err := hkdf.Key(sha256.New, key, []byte(cluster), purpose+"authentication", sha256.Size)
		seal, err2 := hkdf.Key(sha256.New, key, []byte(cluster), purpose+"partitions", chacha20poly1305.KeySize)
		if err := errors.Join(err, err2); err != nil {
			return nil, fmt.Errorf("derive the keys of messages: %w", err)
		}
		aead, err := chacha20poly1305.NewX(seal)
		if err != nil {
			return nil, fmt.Errorf("derive the keys of messages: %w", err)
		}
		s.keys = append(s.keys, secretKey{hmac.New(sha256.New, mac), aead})
	}
	return s, nil
}

// Sign appends a MAC to a message that will travel under a subject. It covers both.
func (s *Secret) Sign(subject string, message []byte) []byte {
	message = append(message, macTag, macLength)
	return append(message, s.sum(&s.keys[0], subject, message)...)
}

// sum is the MAC of a message up to it. It is valid until the next call.
func (s *Secret) sum(k *secretKey, subject string, message []byte) []byte {
	k.mac.Reset()
	k.mac.Write(append([]byte(subject), 0)) // no subject contains a 0
	k.mac.Write(message)
	return k.mac.Sum(s.mac[:0])[:macLength]
}

// Verify refuses a message that was not signed for this subject, before anything else of it
// is read but its size and version. Its errors are an *Error.
func (s *Secret) Verify(subject string, message []byte) error {
	if err := checkEnvelope(message); err != nil {
		return err
	}
	at := len(message) - macLength
	if at < 2 || message[at-2] != macTag || message[at-1] != macLength {
		return Refuse(ReasonMAC, "it ends with no MAC")
	}
	for i := range s.keys {
		if hmac.Equal(s.sum(&s.keys[i], subject, message[:at]), message[at:]) {
			return nil
		}
	}
	return Refuse(ReasonMAC, "its MAC is of another key, cluster or subject, or it was changed on its way")
}

// Seal encrypts what only holders of the secret may read of a message, before Append: the
// partitions of wants, the tenant of a Reset, the payload of a Top or Overrides.
func (s *Secret) Seal(m Message) {
	switch m := m.(type) {
	case *Loans:
		for i := range m.Wants {
			if w := &m.Wants[i]; w.Partition != nil {
				w.Sealed = s.seal("", w.PartitionID, w.Partition.AppendLoansID(nil))
			}
		}
	case *Reset:
		m.Sealed = s.seal("", m.ID, []byte(m.Tenant))
	case *Top:
		m.Sealed = s.seal("top", m.Seq, m.Payload)
	case *Overrides:
		m.Sealed = s.seal("overrides", m.Seq, m.Payload)
	}
}

func (s *Secret) seal(purpose string, id uint64, text []byte) []byte {
	seal := s.keys[0].seal
	nonce := make([]byte, seal.NonceSize())
	_, _ = rand.Read(nonce) // never fails
	return seal.Seal(nonce, nonce, text, binary.BigEndian.AppendUint64([]byte(purpose), id))
}

// Unseal reads what Seal encrypted, after Decode. Its error is an *Error.
func (s *Secret) Unseal(m Message) (err error) {
	switch m := m.(type) {
	case *Loans:
		for i := range m.Wants {
			if w := &m.Wants[i]; w.Sealed != nil && err == nil {
				w.Partition, err = s.partition(w.PartitionID, w.Sealed)
			}
		}
	case *Reset:
		m.Tenant, err = s.tenant(m.ID, m.Sealed)
	case *Top:
		m.Payload, err = s.open("top", m.Seq, m.Sealed, MaxPayload)
	case *Overrides:
		m.Payload, err = s.open("overrides", m.Seq, m.Sealed, MaxPayload)
	}
	return err
}

func (s *Secret) tenant(id uint64, sealed []byte) (string, error) {
	text, err := s.open("", id, sealed, maxPartition)
	if err == nil && quota.ValidID(string(text)) != nil { // as of a partition, which has spaces
		err = Refuse(ReasonRange, "sealed text of %d bytes is no tenant", len(text))
	}
	return string(text), err
}

// partition reads what CounterKey.AppendLoansID wrote.
func (s *Secret) partition(id uint64, sealed []byte) (*quota.CounterKey, error) {
	text, err := s.open("", id, sealed, maxPartition)
	if err != nil {
		return nil, err
	}
	parts, calendar := strings.Split(string(text), " "), ""
	strange := func(r rune) bool { return r <= ' ' || r > '~' || r == '{' || r == '}' }
	if len(parts) == 6 {
		calendar = parts[4]
		if _, ok := quota.CalendarWindow(calendar); ok {
			parts = slices.Delete(parts, 4, 5)
		}
	}
	if len(parts) != 5 || bytes.ContainsFunc(bytes.ReplaceAll(text, []byte(" "), nil), strange) ||
		parts[0] != "" && quota.ValidID(parts[0]) != nil || quota.ValidName(parts[1]) != nil || quota.ValidName(parts[2]) != nil {
		return nil, Refuse(ReasonRange, "sealed text of %d bytes is no partition", len(text))
	}
	window, err := strconv.ParseInt(parts[4], 10, 64)
	if err != nil || window < 1 || window > quota.MaxWindow.Microseconds() {
		return nil, Refuse(ReasonRange, "sealed text of %d bytes has no window", len(text))
	}
	return &quota.CounterKey{Tenant: parts[0], Policy: parts[1], Limit: parts[2], Partition: parts[3], WindowUS: window, Calendar: calendar}, nil
}

func (s *Secret) open(purpose string, id uint64, sealed []byte, most int) ([]byte, error) {
	for i := range s.keys {
		seal := s.keys[i].seal
		n := seal.NonceSize()
		if len(sealed) < n || len(sealed) > n+most {
			break
		}
		text, err := seal.Open(nil, sealed[:n], sealed[n:], binary.BigEndian.AppendUint64([]byte(purpose), id))
		if err == nil {
			return text, nil
		}
	}
	return nil, Refuse(ReasonMAC, "a name of %d bytes was not sealed by our secret", len(sealed))
}

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
