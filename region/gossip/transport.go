package gossip

import (
	"bytes"
	"cmp"
	"crypto/aes"
	"crypto/cipher"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-msgpack/v2/codec"
	"github.com/hashicorp/memberlist"
)

// The bounds of what arrives. memberlist buffers up to 20 MiB of a stream, and any
// number of streams, before it knows whether the sender has the key; and makes room
// for what a stream announces.
const (
	// maxNode bounds what one member takes in an exchange of state: 200 bytes of name,
	// 131 of metadata, 16 of address, 80 of field names and lengths.
	maxNode = 448
	// maxStream is the most bytes that are read from one stream: a full table.
	maxStream = maxMembers * maxNode
	// maxBuffered is the most bytes read from all streams that are open. Buffers and the garbage
	// collector let the heap grow to a few times that.
	maxBuffered = 8 << 20
	// maxStreams bounds the streams that are open, maxStreamsOfAddress those with one
	// address, or one /64 of IPv6. An exchange takes a few round trips, and each process
	// starts one every 15 seconds.
	maxStreams          = 256
	maxStreamsOfAddress = 64
	// maxPacket is above what memberlist sends in one: UDPBufferSize, the label, the
	// nonce and the tag.
	maxPacket = 2 << 10
)

// transport passes to memberlist only what somebody with the key sent, whole, and of a
// size that a deployment needs. All streams share the bounds. When one is exceeded, a
// stream is closed: that of a stranger before that of a known address, and
//
//	too many of one address   its oldest
//	too many in all           the oldest of the address with the most
//	too many bytes in all     the one of which most was read
//	too many bytes of one     this one
//
// An exchange sends what it has at once and ends within a few round trips, so the oldest
// and the largest are the least likely to be one. memberlist ends a stream that is not
// read, or whose answer is not taken, after TCPTimeout each.
type transport struct {
	memberlist.Transport
	label   []byte // header of streams that others open, and of packets
	cluster []byte // authenticated with each message
	keys    *memberlist.Keyring
	refused func(reason string)
	known   atomic.Pointer[map[netip.Addr]bool] // where members and seeds are

	streams chan net.Conn
	packets chan *memberlist.Packet
	closed  chan struct{} // what arrives from now on is dropped
	ended   chan struct{} // nothing arrives any more
	stop    func() error  // once

	opening sync.Mutex // held while a message is decrypted, so that there is room for one at a time

	mu       sync.Mutex
	open     []*stream // oldest first
	buffered int       // bytes read from all of them
}

func newTransport(inner memberlist.Transport, c *memberlist.Config, refused func(reason string)) *transport {
	t := &transport{
		Transport: inner, cluster: []byte(c.Label), keys: c.Keyring, refused: refused,
		streams: make(chan net.Conn), packets: make(chan *memberlist.Packet),
		closed: make(chan struct{}), ended: make(chan struct{}),
	}
	if c.Label != "" {
		t.label = append([]byte{labelHeader, byte(len(c.Label))}, c.Label...)
	}
	t.setKnown(nil)
	var passing sync.WaitGroup
	passing.Go(t.pass)
	t.stop = sync.OnceValue(func() error {
		close(t.closed)
		err := inner.Shutdown() // its own sockets wait until what they received is taken
		close(t.ended)
		passing.Wait()
		return err
	})
	return t
}

// StreamCh is where streams arrive.
func (t *transport) StreamCh() <-chan net.Conn { return t.streams }

// PacketCh is where packets arrive.
func (t *transport) PacketCh() <-chan *memberlist.Packet { return t.packets }

// Shutdown closes the inner transport. A second call does nothing.
func (t *transport) Shutdown() error { return t.stop() }

// pass admits streams and checks packets until nothing arrives any more.
func (t *transport) pass() {
	for {
		select {
		case c := <-t.Transport.StreamCh():
			s := t.admit(c, t.label)
			select {
			case t.streams <- s:
			case <-t.closed:
				_ = s.Close()
			}
		case p := <-t.Transport.PacketCh():
			if reason := t.checkPacket(p.Buf); reason != "" {
				t.refused(reason)
				continue
			}
			select {
			case t.packets <- p:
			case <-t.closed:
			}
		case <-t.ended:
			return
		}
	}
}

func (t *transport) checkPacket(b []byte) (reason string) {
	if len(b) > maxPacket {
		return "size"
	}
	sealed, ok := bytes.CutPrefix(b, t.label)
	if !ok {
		return "label"
	}
	if _, ok = t.unseal(sealed, t.cluster); !ok {
		return "key"
	}
	return ""
}

func (t *transport) setKnown(addrs map[netip.Addr]bool) { t.known.Store(&addrs) }

// stream is a connection with another process, opened by either.
type stream struct {
	net.Conn
	t        *transport
	from     netip.Addr
	stranger int // 0 for an address of a member or a seed, otherwise 1

	label   []byte    // the header that must come first; those that we opened have none
	checked io.Reader // nil before the first Read; used by the reader only

	read   int  // guarded by t.mu
	closed bool // guarded by t.mu
}

// DialTimeout opens a stream. Whoever answers may send no more than others may.
func (t *transport) DialTimeout(addr string, timeout time.Duration) (net.Conn, error) {
	c, err := t.Transport.DialTimeout(addr, timeout)
	if err != nil {
		return nil, err
	}
	return t.admit(c, nil), nil
}

// admit counts a new stream, for which another may have to give way.
func (t *transport) admit(c net.Conn, label []byte) *stream {
	s := &stream{Conn: c, t: t, label: label, from: network(c.RemoteAddr().String())}
	if !(*t.known.Load())[s.from] {
		s.stranger = 1
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.open = append(t.open, s)
	of := map[netip.Addr]int{} // how many by address
	for _, o := range t.open {
		of[o.from]++
	}
	switch {
	case of[s.from] > maxStreamsOfAddress:
		t.cut("streams", t.open[slices.IndexFunc(t.open, func(o *stream) bool { return o.from == s.from })])
	case len(t.open) > maxStreams:
		t.cut("streams", slices.MaxFunc(t.open, func(a, b *stream) int {
			return cmp.Or(a.stranger-b.stranger, of[a.from]-of[b.from])
		}))
	}
	return s
}

// Read checks the message that the stream begins with before it returns any of it.
func (s *stream) Read(b []byte) (int, error) {
	if s.checked == nil {
		message, err := s.check()
		if err != nil {
			_ = s.Close()
			return 0, err
		}
		s.checked = io.MultiReader(message, readerFunc(s.receive))
	}
	return s.checked.Read(b)
}

func (s *stream) receive(b []byte) (int, error) {
	n, err := s.Conn.Read(b)
	t := s.t
	t.mu.Lock()
	defer t.mu.Unlock()
	if s.closed {
		return 0, net.ErrClosed // it has given way
	}
	s.read, t.buffered = s.read+n, t.buffered+n
	if s.read > maxStream {
		t.cut("size", s)
		return 0, errSize
	}
	for t.buffered > maxBuffered {
		t.cut("bytes", slices.MaxFunc(t.open, func(a, b *stream) int { return cmp.Or(a.stranger-b.stranger, a.read-b.read) }))
	}
	return n, err
}

// errSize is the end of a stream that is larger than any state.
var errSize = fmt.Errorf("more than %d bytes, which the state of %d processes takes", maxStream, maxMembers)

// Of memberlist's format: the header of a label, and the types of the messages that this
// package sends on streams.
const (
	labelHeader = 244
	ping        = 0
	ack         = 2
	pushPull    = 6
	encrypted   = 10
	failure     = 13
)

// check reads the message with which the stream begins, and returns it as it came:
//
//	label header    what is sealed    version   nonce   sealed message and tag
//	(others only)   10, length uint32   1 byte    12      length − 13
func (s *stream) check() (io.Reader, error) {
	in, t := readerFunc(s.receive), s.t
	refuse := func(reason, format string, args ...any) (io.Reader, error) {
		t.refused(reason)
		return nil, fmt.Errorf(format, args...)
	}
	first := make([]byte, len(s.label)+5)
	if _, err := io.ReadFull(in, first); err != nil {
		return nil, err
	}
	header, ok := bytes.CutPrefix(first, s.label)
	if !ok {
		return refuse("label", "a stream of another cluster")
	}
	if header[0] != encrypted {
		return refuse("key", "a stream that is not encrypted")
	}
	length := binary.BigEndian.Uint32(header[1:])
	if length > maxStream {
		return refuse("size", "a stream of %d bytes: %w", length, errSize)
	}
	var sealed bytes.Buffer // grows with what arrives, whatever is announced
	if _, err := io.CopyN(&sealed, in, int64(length)); err != nil {
		return nil, err
	}
	message, ok := t.unseal(sealed.Bytes(), append(bytes.Clone(header), t.cluster...))
	if !ok {
		return refuse("key", "a stream that is encrypted with another key")
	}
	if err := checkMessage(message); err != nil {
		return refuse("message", "a stream that makes no sense: %w", err)
	}
	return io.MultiReader(bytes.NewReader(first), &sealed), nil
}

// unseal decrypts and authenticates a message with any of the keys, as memberlist does.
func (t *transport) unseal(sealed, data []byte) ([]byte, bool) {
	const version, nonce = 1, 12
	if len(sealed) < 1+nonce || sealed[0] != version {
		return nil, false
	}
	t.opening.Lock()
	defer t.opening.Unlock()
	for _, key := range t.keys.GetKeys() {
		block, err := aes.NewCipher(key)
		if err != nil {
			return nil, false
		}
		gcm, err := cipher.NewGCM(block)
		if err != nil {
			return nil, false
		}
		if plain, err := gcm.Open(nil, sealed[1:1+nonce], sealed[1+nonce:], data); err == nil {
			return plain, true
		}
	}
	return nil, false
}

// checkMessage finds an exchange that announces more than it has: memberlist makes room
// for that. Its sender has the key, and so may anybody who stole it.
func checkMessage(b []byte) error {
	if len(b) == 0 {
		return errors.New("it is empty")
	}
	switch b[0] {
	case ping, ack, failure:
		return nil
	case pushPull:
	default:
		return fmt.Errorf("message type %d is not used", b[0])
	}
	in := codec.NewDecoderBytes(b[1:], &codec.MsgpackHandle{})
	var header struct{ Nodes, UserStateLen int }
	if err := in.Decode(&header); err != nil {
		return fmt.Errorf("header of the state: %w", err)
	}
	if header.Nodes < 0 || header.Nodes > maxMembers || header.UserStateLen != 0 {
		return fmt.Errorf("%d processes and %d bytes of other state; at most %d and none are expected",
			header.Nodes, header.UserStateLen, maxMembers)
	}
	for range header.Nodes {
		var node struct{ Name string }
		if err := in.Decode(&node); err != nil {
			return fmt.Errorf("state of a process: %w", err)
		}
	}
	return nil
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(b []byte) (int, error) { return f(b) }

// Close closes the connection.
func (s *stream) Close() error {
	s.t.mu.Lock()
	defer s.t.mu.Unlock()
	return s.t.close(s)
}

// cut closes a stream that exceeds a bound; t.mu is held.
func (t *transport) cut(reason string, s *stream) {
	t.refused(reason)
	_ = t.close(s)
}

// close closes a stream and counts it no longer; t.mu is held.
func (t *transport) close(s *stream) error {
	if !s.closed {
		t.buffered -= s.read
	}
	s.closed = true
	t.open = slices.DeleteFunc(t.open, func(o *stream) bool { return o == s })
	return s.Conn.Close()
}

// network is the address of host:port, or the /64 around it for IPv6, of which one
// sender has all; the zero Addr where there is none, as in tests.
func network(hostPort string) netip.Addr {
	ap, _ := netip.ParseAddrPort(hostPort)
	addr := ap.Addr().Unmap().WithZone("")
	if addr.Is6() {
		p, _ := addr.Prefix(64) // no error: it has 64 bits
		addr = p.Addr()
	}
	return addr
}
