package signal_test

import (
	"testing"

	"github.com/regiond/regiond/internal/base/signal"
)

func TestSignalsAreOne(t *testing.T) {
	t.Parallel()
	c := make(chan struct{}, 1)
	for _, n := range []int{0, 1, 2, 1000} {
		for range n {
			signal.Send(c)
		}
		if got := signal.Taken(c); got != (n > 0) {
			t.Errorf("after %d signals one was taken: %t", n, got)
		}
		if signal.Taken(c) {
			t.Errorf("of %d signals two were left", n)
		}
	}
}
