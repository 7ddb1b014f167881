package wan

import (
	"net/netip"
	"testing"
)

func TestHeader(t *testing.T) {
	udp := []byte{
		0x45, 0, 0, 28, 0, 0, 0, 0, 64, protocolUDP, 0, 0, 10, 77, 0, 1, 10, 77, 0, 2,
		0x1f, 0x0a, 0xc3, 0x50, 0, 8, 0, 0, // from 7946 to 50000
	}
	later, options := append([]byte(nil), udp...), append([]byte(nil), udp...)
	later[7] = 1 // a fragment that does not begin the packet
	options[0] = 0x46
	there := netip.MustParseAddr("10.77.0.2")
	for _, row := range []struct {
		name string
		data []byte
		want packet
		ok   bool
	}{
		{"UDP", udp, packet{protocolUDP, 28, [2]uint16{7946, 50_000}}, true},
		{"a later fragment", later, packet{protocolUDP, 28, [2]uint16{}}, true},
		{"with an option of four bytes", options, packet{protocolUDP, 28, [2]uint16{8, 0}}, true},
		{"cut short behind the addresses", udp[:20], packet{protocolUDP, 20, [2]uint16{}}, true},
		{"cut short", udp[:19], packet{}, false},
		{"IPv6", append([]byte{0x60}, udp[1:]...), packet{}, false},
	} {
		got, to, ok := header(row.data)
		if got != row.want || ok != row.ok || ok && to != there {
			t.Errorf("%s: %+v to %v, %v; want %+v, %v", row.name, got, to, ok, row.want, row.ok)
		}
	}
}
