package meshtest_test

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	meshsync "github.com/regiond/regiond/sync"
	"github.com/regiond/regiond/sync/meshtest"
	"github.com/regiond/regiond/sync/wire"
)

var _ meshsync.Bus = (*meshtest.Bus)(nil)

const usageOfEU = meshsync.SubjectUsage + "eu"

// heard empties a bus.
func heard(b *meshtest.Bus) (texts []string) {
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
		if sent := send(t, eu, 50); !slices.Equal(heard(us), sent) || heard(eu) != nil {
			t.Error("without faults all arrives at once, in order, and does not come back")
		}
		n.Set("eu", "us", meshtest.Link{Latency: 70 * time.Millisecond})
		sent := send(t, eu, 50)
		time.Sleep(70*time.Millisecond - time.Nanosecond)
		if got := heard(us); got != nil {
			t.Errorf("%d arrived early", len(got))
		}
		time.Sleep(time.Nanosecond)
		if got := heard(us); !slices.Equal(got, sent) {
			t.Errorf("arrived late, or out of order: %v", got)
		}
		n.Set("eu", "us", meshtest.Link{Jitter: 50 * time.Millisecond})
		sent = send(t, eu, 50)
		time.Sleep(50 * time.Millisecond)
		got := heard(us)
		if slices.Equal(got, sent) || !slices.Equal(slices.Sorted(slices.Values(got)), slices.Sorted(slices.Values(sent))) {
			t.Errorf("jitter must reorder, and lose nothing: %v", got)
		}
		n.Set("eu", "us", meshtest.Link{Loss: 0.5})
		send(t, eu, 100)
		if got := len(heard(us)); got < 30 || got > 70 {
			t.Errorf("%d of 100 arrived", got)
		}
		n.Set("eu", "us", meshtest.Link{Repeat: 0.5})
		send(t, eu, 100)
		if got := len(heard(us)); got < 130 || got > 170 {
			t.Errorf("100 became %d", got)
		}
		n.Set("eu", "us", meshtest.Link{Cut: true})
		send(t, eu, 1)
		if err := us.Publish(meshsync.SubjectHeartbeat+"us", []byte("x")); err != nil || heard(us) != nil || len(heard(eu)) != 1 {
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
		if len(heard(us)) != 1 || len(heard(sibling)) != 1 {
			t.Error("a process of the region did not get the request")
		}
		if err := us.Publish(meshsync.SubjectSnapshot+"ap", nil); err != nil || heard(eu) != nil {
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
		if len(us.Drops()) != 0 {
			t.Error("something was dropped though everything fits")
		}
		send(t, eu, 1)
		if len(us.Drops()) != 1 || gap() {
			t.Error("one did not fit, and that is not what is said")
		}
		heard(us)
		us.Down()
		send(t, eu, 1)
		if err := us.Publish(usageOfEU, nil); !errors.Is(err, meshtest.ErrDown) || heard(us) != nil {
			t.Errorf("down, it still carries: %v", err)
		}
		us.Up()
		if send(t, eu, 1); !gap() || len(heard(us)) != 1 {
			t.Error("up again, it does not carry, or does not say that there was a gap")
		}
	})
}

// A message of all that one holds makes another hold the same.
func TestTotalsFoldWhatTheyTake(t *testing.T) {
	now := func() time.Duration { return time.Hour }
	eu, us := meshtest.NewTotals("eu", now), meshtest.NewTotals("us", now)
	eu.UrgentAbove = 3
	c := meshtest.Cell{Region: "eu", Limit: "p.l", WindowUS: 1000, BucketUS: 1000, Bucket: 5, ID: 1, Epoch: 5000}
	fold := func(groups []wire.Group) {
		t.Helper()
		if err := us.Fold("eu", 5500, time.Hour, groups); err != nil {
			t.Fatal(err)
		}
	}
	eu.Admit(3, c)
	if got := eu.Take(10, false); len(got) != 0 || len(eu.Urgent()) != 0 {
		t.Errorf("3 units are not more than 3: %v", got)
	}
	eu.Admit(1, c)
	if len(eu.Urgent()) != 1 {
		t.Error("4 units are urgent")
	}
	fold(eu.Take(10, false))
	if got := eu.Take(10, true); len(got) != 0 || us.Snapshot()[c] != 4 {
		t.Errorf("left over: %v; us holds %v", got, us.Snapshot())
	}
	for groups := range eu.Live("eu", 1) {
		fold(groups)
	}
	rolled, _ := eu.Roll(1)
	fold(rolled)
	if !maps.Equal(us.Of("eu"), eu.Of("eu")) || len(us.Snapshot()) != 1 {
		t.Errorf("us holds %v", us.Snapshot())
	}
	c.Bucket = 7
	eu.Admit(1, c)
	if err := us.Fold("eu", 5999, time.Hour, eu.Take(10, true)); err == nil || len(us.Snapshot()) != 1 {
		t.Error("folded what lies ahead of its author's clock")
	}
}
