package natsbus

import (
	"errors"
	"testing"
)

// The queue takes messages only while it is open, up to either bound, and keeps no
// reference to what it was given.
func TestQueue(t *testing.T) {
	q := newQueue()
	if err := q.push("s", nil); !errors.Is(err, ErrDisconnected) {
		t.Errorf("push before start: %v", err)
	}
	q.start(4)
	data := []byte("abcd")
	if err := q.push("s", data); err != nil {
		t.Fatal(err)
	}
	data[0] = 'x'
	if err := q.push("s", append(data, 'e')); !errors.Is(err, ErrTooLarge) {
		t.Errorf("push of more than the server takes: %v", err)
	}
	if m, ok := q.pop(); !ok || string(m.Data) != "abcd" {
		t.Errorf("pop %q, %v", m.Data, ok)
	}
	for range QueueMessages {
		if err := q.push("s", nil); err != nil {
			t.Fatal(err)
		}
	}
	if err := q.push("s", nil); !errors.Is(err, ErrFull) {
		t.Errorf("push of one message too many: %v", err)
	}
	q.stop()
	if _, ok := q.pop(); !ok {
		t.Error("what was queued is gone with stop")
	}
	if got := q.clear(); got != QueueMessages-1 {
		t.Errorf("clear forgot %d", got)
	}
	if _, ok := q.pop(); ok {
		t.Error("something is left after clear")
	}
	q.start(2 * MaxMessage)
	for range QueueBytes/MaxMessage - 1 {
		if err := q.push("s", make([]byte, MaxMessage)); err != nil {
			t.Fatal(err)
		}
	}
	if err := q.push("s", make([]byte, MaxMessage)); !errors.Is(err, ErrFull) {
		t.Errorf("push of more bytes than fit, with the subjects: %v", err)
	}
	if err := q.push("s", make([]byte, MaxMessage+1)); !errors.Is(err, ErrTooLarge) {
		t.Errorf("push of more than any server takes: %v", err)
	}
}

func TestDelay(t *testing.T) {
	for range 1000 {
		if d := delay(1, false); d != 0 {
			t.Fatalf("the first attempt waits %v", d)
		}
		if d := delay(1, true); d < 100e6 || d >= 500e6 {
			t.Fatalf("the attempt after a loss waits %v", d)
		}
		if d := delay(7, true); d < 200e6 || d >= 800e6 {
			t.Fatalf("a later attempt waits %v", d)
		}
	}
}
