package limiter

import (
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"encoding/binary"
	"slices"
	"sync/atomic"

	"go.opentelemetry.io/otel/trace"

	"github.com/regiond/regiond/quota"
)

// Seal makes the ids of reservations, and opens them. An id has all that a settle needs, so that any process of any region can
// do it, and says nothing to who has it: it is encrypted and authentic. Safe for concurrent use.
//
//	id = base64url(tag ‖ AES-CTR(tag, ticket)), tag = HMAC-SHA256(ticket), cut to 16 bytes
//
// The tag is the initial vector (SIV): no nonce can come twice, however many ids there are, and equal tickets, as of a
// replay, have equal ids, unless they are of sampled traces.
type Seal struct {
	keys atomic.Pointer[[]sealKey] // the first seals, all open
}

// mostSealKeys bounds the keys that still open ids. More than two there are only where Redis loses what it keeps.
const mostSealKeys = 4

type sealKey struct {
	mac   []byte
	block cipher.Block
}

// NewSeal returns a Seal whose ids this process alone opens, until Share.
func NewSeal() *Seal {
	secret := make([]byte, sha256.Size)
	_, _ = rand.Read(secret) // never fails
	s := &Seal{}
	s.Share(secret)
	return s
}

// Share makes ids under a secret that other processes have too. Those of before are still opened here. It is called by one
// goroutine at a time.
func (s *Seal) Share(secret []byte) {
	keys := []sealKey{newSealKey(secret)}
	if before := s.keys.Load(); before != nil {
		keys = append(keys, *before...)
	}
	keys = keys[:min(len(keys), mostSealKeys)]
	s.keys.Store(&keys)
}

func newSealKey(secret []byte) sealKey {
	derive := func(label string) []byte {
		k, err := hkdf.Key(sha256.New, secret, nil, label, sha256.Size)
		if err != nil { // only of lengths that SHA-256 does not make
			panic(err)
		}
		return k
	}
	block, err := aes.NewCipher(derive("regiond reservation encryption"))
	if err != nil { // the length is one of AES
		panic(err)
	}
	return sealKey{mac: derive("regiond reservation authentication"), block: block}
}

// maxSealed bounds an id, in characters: one with sixteen dimensions, all as long as they may be, has 7,500.
const maxSealed = 8 << 10

const tagSize = 16

func (k *sealKey) tag(plain []byte) []byte {
	h := hmac.New(sha256.New, k.mac)
	_, _ = h.Write(plain)
	return h.Sum(nil)[:tagSize]
}

// seal returns the id of a ticket.
func (s *Seal) seal(t *ticket) string {
	k := &(*s.keys.Load())[0]
	plain := t.append(make([]byte, 0, 128))
	out := append(k.tag(plain), plain...)
	cipher.NewCTR(k.block, out[:tagSize]).XORKeyStream(out[tagSize:], plain)
	return base64.RawURLEncoding.EncodeToString(out)
}

// open returns the ticket of an id; false for one that is not authentic.
func (s *Seal) open(id string) (*ticket, bool) {
	if len(id) > maxSealed {
		return nil, false
	}
	sealed, err := base64.RawURLEncoding.Strict().DecodeString(id)
	if err != nil || len(sealed) < tagSize {
		return nil, false
	}
	for _, k := range *s.keys.Load() {
		plain := make([]byte, len(sealed)-tagSize)
		cipher.NewCTR(k.block, sealed[:tagSize]).XORKeyStream(plain, sealed[tagSize:])
		if subtle.ConstantTimeCompare(k.tag(plain), sealed[:tagSize]) == 1 {
			return parseTicket(plain)
		}
	}
	return nil, false
}

// ticket is what an id of a reservation says.
type ticket struct {
	heldBy         heldBy
	number         int64 // store.Hold.ID
	amount         int64
	goneUS         int64  // store.Hold.GoneUS
	overflow       bool   // it is of the partition that unlisted tenants share
	shared         uint64 // which keys of the plan are those of the values beyond MaxValues, as bits
	span           spanID // of the reserve, where that was sampled
	region         string
	tenant, policy string
	dims           quota.Dimensions
}

// spanID is a trace id and a span id; zero for none.
type spanID [16 + 8]byte

// spanOf is the span of a context, if it is sampled.
func spanOf(ctx context.Context) (id spanID) {
	if s := trace.SpanContextFromContext(ctx); s.IsSampled() {
		t, n := s.TraceID(), s.SpanID()
		copy(id[copy(id[:], t[:]):], n[:])
	}
	return id
}

// link has the span of a context refer to this one.
func (id spanID) link(ctx context.Context) {
	if id != (spanID{}) {
		trace.SpanFromContext(ctx).AddLink(trace.Link{SpanContext: trace.NewSpanContext(trace.SpanContextConfig{
			TraceID: trace.TraceID(id[:16]), SpanID: trace.SpanID(id[16:]), TraceFlags: trace.FlagsSampled, Remote: true,
		})})
	}
}

// heldBy is who holds the units of a reservation.
type heldBy uint8

const (
	heldByStore    heldBy = iota
	heldByMemory          // of the process that answered: the store was away
	heldByNobody          // the store was away or busy, and the policy is then open; a settle is a report
	heldForNothing        // no limit that counts tokens applies, or one would have denied it: a settle charges nothing
)

// ticketVersion is the first byte of a ticket. The second has flags, and heldBy above hasOverflow.
const (
	ticketVersion = 1
	hasOverflow   = 1
	hasSpan       = 1 << 7
)

func (t *ticket) append(b []byte) []byte {
	flags := byte(t.heldBy) << 1
	if t.overflow {
		flags |= hasOverflow
	}
	b = append(b, ticketVersion, flags)
	if t.span != (spanID{}) {
		b[len(b)-1] |= hasSpan
		b = append(b, t.span[:]...)
	}
	for _, n := range [...]int64{t.number, t.amount, t.goneUS, int64(t.shared)} {
		b = binary.AppendUvarint(b, uint64(n))
	}
	b = appendTexts(b, t.region, t.tenant, t.policy)
	for _, d := range t.dims {
		b = appendTexts(b, d.Name, d.Value)
	}
	return b
}

func appendTexts(b []byte, texts ...string) []byte {
	for _, s := range texts {
		b = append(binary.AppendUvarint(b, uint64(len(s))), s...)
	}
	return b
}

// parseTicket reads what append wrote: it is authentic. It is false for a version that is not known.
func parseTicket(b []byte) (*ticket, bool) {
	if len(b) < 2 || b[0] != ticketVersion {
		return nil, false
	}
	flags := b[1]
	t := &ticket{heldBy: heldBy(flags &^ hasSpan >> 1), overflow: flags&hasOverflow != 0}
	ok := true
	take := func(n int) []byte {
		if n < 0 || n > len(b) {
			n, ok = len(b), false
		}
		taken := b[:n]
		b = b[n:]
		return taken
	}
	number := func() int64 {
		n, size := binary.Uvarint(b)
		ok = ok && size > 0
		take(size)
		return int64(n)
	}
	text := func() string { return string(take(int(number()))) }
	take(2)
	if flags&hasSpan != 0 {
		copy(t.span[:], take(len(t.span)))
	}
	t.number, t.amount, t.goneUS, t.shared = number(), number(), number(), uint64(number())
	t.region, t.tenant, t.policy = text(), text(), text()
	for ok && len(b) > 0 {
		t.dims = append(t.dims, quota.Dimension{Name: text(), Value: text()})
	}
	t.dims = slices.Clip(t.dims)
	return t, ok
}
