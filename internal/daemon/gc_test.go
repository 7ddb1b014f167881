package daemon

import "testing"

// What lies about is never more than what is in use, nor more than maxGarbage, but
// for heaps so large that collections would follow each other.
func TestGCPercent(t *testing.T) {
	for live := uint64(1 << 20); live < 64<<30; live += live/7 + 1 {
		garbage := live / 100 * uint64(gcPercent(live))
		switch {
		case live <= maxGarbage:
			if gcPercent(live) != 100 {
				t.Errorf("%d bytes in use: collects at %d %%, a small heap should at 100", live, gcPercent(live))
			}
		case garbage > maxGarbage && garbage > live/10:
			t.Errorf("%d bytes in use: %d of garbage", live, garbage)
		case garbage < maxGarbage*4/5:
			t.Errorf("%d bytes in use: collects after only %d of garbage", live, garbage)
		}
	}
}
