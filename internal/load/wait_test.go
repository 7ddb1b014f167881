package load

import (
	"context"
	"testing"
	"time"
)

// TestWaiter: it returns at the moment or later, never before, and at once when the
// context ends.
func TestWaiter(t *testing.T) {
	w, err := newWaiter()
	if err != nil {
		t.Fatal(err)
	}
	defer w.close()
	for _, ahead := range []time.Duration{-time.Second, 0, 1, 100 * time.Microsecond, 3 * time.Millisecond, 0} {
		at := time.Now().Add(ahead)
		if err := w.until(t.Context(), at); err != nil || time.Now().Before(at) {
			t.Errorf("%v ahead: %v, %v before", ahead, err, time.Until(at))
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	returned := make(chan error)
	go func() { returned <- w.until(ctx, time.Now().Add(time.Hour)) }()
	cancel()
	select {
	case err := <-returned:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(10 * time.Second):
		t.Fatal("it waits on after the context ended")
	}
	if err := w.until(ctx, time.Now().Add(time.Hour)); err != nil { // and so after it
		t.Error(err)
	}
}
