package ports_test

import (
	"net"
	"strconv"
	"testing"

	"github.com/regiond/regiond/test/ports"
)

// TestNobodyElseGetsIt: more ports than a careless choice of 10,000 would give without a
// repeat, each with another beside it.
func TestNobodyElseGetsIt(t *testing.T) {
	taken := map[int]bool{}
	for range 400 {
		base := ports.Take(t, 1)
		for _, port := range []int{base, base + 1} {
			if taken[port] {
				t.Fatalf("%d was given twice", port)
			}
			taken[port] = true
		}
	}
}

func TestItCanBeBound(t *testing.T) {
	base := ports.Take(t, 10_000)
	for _, port := range []int{base, base + 10_000} {
		l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = l.Close() })
	}
}
