package gossip

import (
	"io"
	"net"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/hashicorp/memberlist"
)

// conn is a stream from an address, of which any number of bytes can be read.
type conn struct {
	net.Conn
	from   string
	closed bool
}

func (c *conn) RemoteAddr() net.Addr {
	return net.TCPAddrFromAddrPort(netip.MustParseAddrPort(c.from))
}
func (c *conn) Read(b []byte) (int, error)  { return len(b), nil }
func (c *conn) Close() error                { c.closed = true; return nil }
func (c *conn) SetDeadline(time.Time) error { return nil }
func (c *conn) Write(b []byte) (int, error) { return len(b), nil }

// quiet is a transport on which nothing arrives.
type quiet struct{ memberlist.Transport }

func (quiet) StreamCh() <-chan net.Conn           { return nil }
func (quiet) PacketCh() <-chan *memberlist.Packet { return nil }
func (quiet) Shutdown() error                     { return nil }

// TestWhichStreamIsClosed opens streams, "from bytes read", until a bound is exceeded.
func TestWhichStreamIsClosed(t *testing.T) {
	type open struct {
		from        string
		count, read int
	}
	const known, stranger = "192.0.2.1", "198.51.100.7"
	for _, row := range []struct {
		name   string
		open   []open
		closed []int // places in the order of opening
	}{
		{"all fit", []open{{known, 1, 0}, {stranger, maxStreamsOfAddress, 0}}, nil},
		{"the oldest of its address", []open{{known, 2, 0}, {stranger, maxStreamsOfAddress + 2, 0}}, []int{2, 3}},
		{"also of a known one", []open{{stranger, 2, 0}, {known, maxStreamsOfAddress + 1, 0}}, []int{2}},
		{"a whole /64 is one address", []open{{"2001:db8::1", maxStreamsOfAddress, 0}, {"2001:db8::2", 1, 0}}, []int{0}},
		{"two of them are two", []open{{"2001:db8::1", maxStreamsOfAddress, 0}, {"2001:db8:0:1::1", 1, 0}}, nil},
		{
			"of the address with the most, not of a known one",
			[]open{{known, 64, 0}, {"10.0.0.1", 62, 0}, {"10.0.0.2", 64, 0}, {"10.0.0.3", 64, 0}, {"10.0.0.4", 3, 0}},
			[]int{126},
		},
		{
			"a known one when there are no others",
			[]open{{known, 64, 0}, {"192.0.2.2", 64, 0}, {"192.0.2.3", 64, 0}, {"192.0.2.4", 64, 0}, {"192.0.2.5", 1, 0}},
			[]int{0},
		},
		{"more than any state", []open{{known, 1, maxStream + 1}}, []int{0}},
		{
			"the largest of strangers",
			[]open{{known, 36, maxStream}, {stranger, 1, 60_000}, {stranger, 1, 70_000}, {known, 1, 70_000}},
			[]int{37},
		},
		{
			"as many as it takes",
			[]open{{known, 36, maxStream}, {stranger, 1, 30_000}, {stranger, 1, 40_000}, {known, 1, 120_000}},
			[]int{36, 37},
		},
	} {
		t.Run(row.name, func(t *testing.T) {
			refused := 0
			ring, err := memberlist.NewKeyring(nil, make([]byte, 32))
			if err != nil {
				t.Fatal(err)
			}
			tr := newTransport(quiet{}, &memberlist.Config{Keyring: ring}, func(string) { refused++ })
			defer func() { _ = tr.Shutdown() }()
			addrs := map[netip.Addr]bool{}
			for i := range 9 {
				addrs[netip.AddrFrom4([4]byte{192, 0, 2, byte(i)})] = true
			}
			tr.setKnown(addrs)
			var conns []*conn
			for _, o := range row.open {
				for range o.count {
					c := &conn{from: netip.AddrPortFrom(netip.MustParseAddr(o.from), 7946).String()}
					conns = append(conns, c)
					s := tr.admit(c, nil)
					_, _ = io.ReadFull(readerFunc(s.receive), make([]byte, o.read)) // an error closes it
				}
			}
			var closed []int
			for i, c := range conns {
				if c.closed {
					closed = append(closed, i)
				}
			}
			slices.Sort(row.closed)
			if !slices.Equal(closed, row.closed) || refused != len(closed) {
				t.Errorf("closed %v, counted %d; want %v", closed, refused, row.closed)
			}
		})
	}
}
