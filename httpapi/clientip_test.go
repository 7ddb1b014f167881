package httpapi_test

import (
	"net/netip"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/regiond/regiond/httpapi"
)

func TestClientIP(t *testing.T) {
	trusted := []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("fd00::/8")}
	rows := []struct {
		peer, forwarded, want string // forwarded lines separated by |
	}{
		{"198.51.100.7:4711", "", "198.51.100.7"},
		{"198.51.100.7:4711", "1.1.1.1", "198.51.100.7"}, // not trusted: not believed
		{"10.0.0.1:80", "", "10.0.0.1"},
		{"10.0.0.1:80", "198.51.100.7", "198.51.100.7"},
		{"10.0.0.1:80", "1.1.1.1, 198.51.100.7", "198.51.100.7"},
		{"10.0.0.1:80", "1.1.1.1, 198.51.100.7, 10.9.9.9", "198.51.100.7"},
		{"10.0.0.1:80", "1.1.1.1|198.51.100.7|10.9.9.9", "198.51.100.7"},
		{"10.0.0.1:80", "10.0.0.2, 10.0.0.3", "10.0.0.2"}, // all ours: the left-most
		{"10.0.0.1:80", "198.51.100.7, garbage, 10.0.0.3", "10.0.0.3"},
		{"10.0.0.1:80", "198.51.100.7,", "10.0.0.1"},
		{"10.0.0.1:80", "unknown", "10.0.0.1"},
		{"10.0.0.1:80", " 198.51.100.7:4711 ", "198.51.100.7"},
		{"10.0.0.1:80", "::ffff:198.51.100.7", "198.51.100.7"},
		{"[::ffff:10.0.0.1]:80", "198.51.100.7", "198.51.100.7"},
		{"[fd00::1%eth0]:80", "2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"},
		{"10.0.0.1:80", "[2001:db8:1:2:3::6]:443", "2001:db8:1:2::/64"},
		{"10.0.0.1:80", "[2001:db8:1:2:3::6]", "2001:db8:1:2::/64"},
		{"10.0.0.1:80", "198.51.100.7, " + strings.Repeat("10.0.0.1, ", 200) + "10.0.0.1", "10.0.0.1"},
		{"@", "198.51.100.7", "invalid IP"},
		{"", "", "invalid IP"},
	}
	for _, row := range rows {
		var lines []string
		if row.forwarded != "" {
			lines = strings.Split(row.forwarded, "|")
		}
		if got := httpapi.IPValue(httpapi.ClientIP(row.peer, lines, trusted)); got != row.want {
			t.Errorf("%s behind %q: %s, want %s", row.peer, row.forwarded, got, row.want)
		}
	}
}

// Nothing that a client writes itself moves it to another address: what it
// sends stands left of what the first trusted proxy adds.
func TestForgedHopsChangeNothing(t *testing.T) {
	trusted := []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}
	rapid.Check(t, func(t *rapid.T) {
		forged := rapid.SliceOfN(rapid.OneOf(rapid.String(), rapid.SampledFrom([]string{"10.0.0.9", "1.1.1.1", "::1", ","})), 0, 4).Draw(t, "forged")
		lines := append(forged, "198.51.100.7, 10.0.0.2") //nolint:gocritic // a new slice is meant
		if got := httpapi.ClientIP("10.0.0.1:80", lines, trusted); got.String() != "198.51.100.7" {
			t.Fatalf("%q: %s", lines, got)
		}
	})
}
