package meshtest_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	meshsync "github.com/regiond/regiond/sync"
	"github.com/regiond/regiond/test/meshtest"
)

var _ meshsync.Bus = (*meshtest.Bus)(nil)

const usageOfEU = meshsync.SubjectUsage + "eu"

// received empties a bus.
func received(b *meshtest.Bus) (texts []string) {
	synctest.Wait()
	for {
		select {
		case m := <-b.Messages():
			texts = append(texts, string(m.Data))
		default:
			return texts
		}
	}
}

func send(t *testing.T, b *meshtest.Bus, n int) (texts []string) {
	t.Helper()
	for i := range n {
		texts = append(texts, fmt.Sprint(i))
		if err := b.Publish(usageOfEU, []byte(texts[i])); err != nil {
			t.Fatal(err)
		}
	}
	return texts
}

func TestLinks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := meshtest.NewNetwork(3)
		eu, us := n.Join("eu"), n.Join("us")
		if sent := send(t, eu, 50); !slices.Equal(received(us), sent) || received(eu) != nil {
			t.Error("without faults all arrives at once, in order, and does not come back")
		}
		n.Set("eu", "us", meshtest.Link{Latency: 70 * time.Millisecond})
		sent := send(t, eu, 50)
		time.Sleep(70*time.Millisecond - time.Nanosecond)
		if got := received(us); got != nil {
			t.Errorf("%d arrived early", len(got))
		}
		time.Sleep(time.Nanosecond)
		if got := received(us); !slices.Equal(got, sent) {
			t.Errorf("arrived late, or out of order: %v", got)
		}
		n.Set("eu", "us", meshtest.Link{Jitter: 50 * time.Millisecond})
		sent = send(t, eu, 50)
		time.Sleep(50 * time.Millisecond)
		got := received(us)
		if slices.Equal(got, sent) || !slices.Equal(slices.Sorted(slices.Values(got)), slices.Sorted(slices.Values(sent))) {
			t.Errorf("jitter must reorder, and lose nothing: %v", got)
		}
		n.Set("eu", "us", meshtest.Link{Loss: 0.5})
		send(t, eu, 100)
		if got := len(received(us)); got < 30 || got > 70 {
			t.Errorf("%d of 100 arrived", got)
		}
		n.Set("eu", "us", meshtest.Link{Repeat: 0.5})
		send(t, eu, 100)
		if got := len(received(us)); got < 130 || got > 170 {
			t.Errorf("100 became %d", got)
		}
		n.Set("eu", "us", meshtest.Link{Cut: true})
		send(t, eu, 1)
		if err := us.Publish(meshsync.SubjectHeartbeat+"us", []byte("x")); err != nil || received(us) != nil || len(received(eu)) != 1 {
			t.Error("a cut is one-way")
		}
	})
}

func TestRequestsGoToOneRegion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := meshtest.NewNetwork(1)
		eu, us, sibling := n.Join("eu"), n.Join("us"), n.Join("us")
		if err := eu.Publish(meshsync.SubjectSnapshot+"us", nil); err != nil {
			t.Fatal(err)
		}
		if len(received(us)) != 1 || len(received(sibling)) != 1 {
			t.Error("a process of the region did not get the request")
		}
		if err := us.Publish(meshsync.SubjectSnapshot+"ap", nil); err != nil || received(eu) != nil {
			t.Error("a request went to another region")
		}
	})
}

func TestGaps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := meshtest.NewNetwork(1)
		eu, us := n.Join("eu"), n.Join("us")
		gap := func() bool { return len(us.Gaps()) == 1 }
		send(t, eu, meshtest.Capacity)
		send(t, eu, 1)
		if gap() {
			t.Error("one did not fit, and that is taken for a gap")
		}
		received(us)
		us.Down()
		send(t, eu, 1)
		if err := us.Publish(usageOfEU, nil); !errors.Is(err, meshtest.ErrDown) || received(us) != nil {
			t.Errorf("down, it still carries: %v", err)
		}
		us.Up()
		if send(t, eu, 1); !gap() || len(received(us)) != 1 {
			t.Error("up again, it does not carry, or does not signal a gap")
		}
	})
}

// A message of all that one holds makes another hold the same.
