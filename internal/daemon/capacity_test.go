package daemon

import "testing"

// What lies about is at least minGarbage; else never more than what is in use, nor more than maxGarbage, but
// for heaps so large that collections would follow each other.
func TestGCPercent(t *testing.T) {
	for live := uint64(1 << 20); live < 64<<30; live += live/7 + 1 {
		garbage := live / 100 * uint64(gcPercent(live))
		switch {
		case garbage < minGarbage*9/10:
			t.Errorf("%d bytes in use: collects after only %d of garbage", live, garbage)
		case garbage > max(live, minGarbage) || garbage > max(maxGarbage, live/10):
			t.Errorf("%d bytes in use: %d of garbage", live, garbage)
		case live > maxGarbage && garbage < maxGarbage*4/5:
			t.Errorf("%d bytes in use: collects after only %d of garbage", live, garbage)
		}
	}
}

// TestConnectionBound: by default connections take no more than half of the memory, and leave descriptors for everything else.
func TestConnectionBound(t *testing.T) {
	for _, row := range []struct{ wanted, files, memory, most int64 }{
		{0, 100_000, 1 << 40, 100_000 - keptFiles},
		{0, 300, 1 << 40, 150},
		{0, 100_000, 64 << 20, 102},
		{0, 100_000, 1, 1},
		{150, 300, 1, 150},
	} {
		if got, err := connectionBound(row.wanted, row.files, row.memory); err != nil || int64(got) != row.most {
			t.Errorf("%+v: %d, %v", row, got, err)
		}
	}
	const says = "--max-connections 200 leaves less than 150 of 300 file descriptors for the rest; raise the limit (ulimit -n) or lower it to 150"
	if _, err := connectionBound(200, 300, 1<<40); err == nil || err.Error() != says {
		t.Errorf("it says %v", err)
	}
}
