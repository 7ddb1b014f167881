package sync_test

import (
	"bytes"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/regiond/regiond/quota"
	meshsync "github.com/regiond/regiond/sync"
	"github.com/regiond/regiond/test/meshtest"
)

// Of payloads that wait the newest travels, once, sealed, to all other processes; a record of one, or one that its
// recipient refuses, is counted and changes nothing.
func TestTopsTravel(t *testing.T) {
	bubble(t, func(w *world) {
		w.net.SetAll(meshtest.Link{Latency: oneWay}, w.regions...)
		var mu sync.Mutex
		got := map[string][]string{}
		join := func(region, instance string, boot int64) *node {
			n := w.newNode(region, instance, boot, 0)
			n.onTop = func(from quota.Process, payload []byte) error {
				if string(payload) == "bad" {
					return errors.New("no counts")
				}
				mu.Lock()
				defer mu.Unlock()
				got[region+instance] = append(got[region+instance], from.Region+" "+string(payload))
				return nil
			}
			n.start(newCounters(n))
			return n
		}
		eu, us, sibling := join("eu", "a", 1), join("us", "a", 2), join("eu", "b", 3)
		sleep(2 * time.Second)
		sent := eu.spy()
		eu.SendTop([]byte("old"))
		eu.SendTop([]byte("new"))
		sleep(time.Second)
		eu.SendTop([]byte("bad"))
		sleep(time.Second)
		records := sent(meshsync.SubjectTop)
		if len(records) != 2 || bytes.Contains(records[0].Data, []byte("new")) {
			t.Fatalf("sent %q", records)
		}
		for range 3 {
			us.bus.Inject(records[0].Subject, records[0].Data)
		}
		us.bus.Inject(meshsync.SubjectTop+"us", records[0].Data) // of another subject
		sleep(time.Second)
		mu.Lock()
		defer mu.Unlock()
		for _, name := range []string{"usa", "eub"} {
			if !slices.Equal(got[name], []string{"eu new"}) {
				t.Errorf("%s received %q", name, got[name])
			}
		}
		if len(got["eua"]) > 0 {
			t.Errorf("its own came back: %q", got["eua"])
		}
		for reason, want := range map[string]int64{"stale": 3, "mac": 1, "range": 1} {
			if n := us.counter("regiond.sync.refused", "reason", reason); n != want {
				t.Errorf("%d messages refused as %s, want %d", n, reason, want)
			}
		}
		if n := sibling.counter("regiond.sync.received", "kind", "top"); n != 1 {
			t.Errorf("the sibling counts %d messages", n)
		}
	}, "eu", "us")
}
