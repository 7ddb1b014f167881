package sync_test

import (
	"slices"
	"testing"
	"time"

	"github.com/regiond/regiond/quota"
	meshsync "github.com/regiond/regiond/sync"
	"github.com/regiond/regiond/sync/meshtest"
)

func TestPeersMeet(t *testing.T) {
	bubble(t, func(w *world) {
		nodes := three(w)
		nodes[0].mu.Lock()
		nodes[0].view = meshsync.Advertised{Members: []string{"ap", "eu", "us"}, Topology: 9, Weights: []quota.Weight{{Region: "eu", Weight: 2}}}
		nodes[0].mu.Unlock()
		nodes[0].HeartbeatSoon()
		sleep(2 * time.Second)
		for _, n := range nodes {
			if len(n.Peers()) != 2 {
				t.Fatalf("%s knows %d processes", n.self.Region, len(n.Peers()))
			}
			for _, p := range n.Peers() {
				switch {
				case !p.Synced, p.Heartbeats < 6, p.RTT != 2*oneWay,
					w.now()-p.ReceivedAt > meshsync.TickEvery+meshsync.HeartbeatEvery+oneWay,
					w.now()-p.AckedAt > meshsync.HeartbeatEvery+2*oneWay+meshsync.HeartbeatEvery:
					t.Errorf("%s knows of %s at %v: %+v", n.self.Region, p.Region, w.now(), p)
				}
			}
		}
		us, eu := nodes[1], nodes[0]
		p := us.knows(eu)
		if p.Key != eu.key().Fingerprint() {
			t.Errorf("us knows eu's key as %x, it is %x", p.Key, eu.key().Fingerprint())
		}
		if !slices.Equal(p.Members, []string{"ap", "eu", "us"}) || p.Topology != 9 || !slices.Equal(p.Weights, []quota.Weight{{Region: "eu", Weight: 2}}) {
			t.Errorf("us has another view of eu's: %+v", p)
		}
		if got, want := p.ClockUS, eu.timeUS()-(w.now()-p.ReceivedAt+oneWay).Microseconds(); got != want {
			t.Errorf("eu's clock, when it sent what us heard last, was %d µs, us took it for %d", want, got)
		}
	}, "eu", "us", "ap")
}

// All processes that start at once are digested well before anybody gives up.
func TestMeetingTakesLessThanASecond(t *testing.T) {
	bubble(t, func(w *world) {
		w.net.SetAll(meshtest.Link{Latency: 150 * time.Millisecond}, w.regions...)
		nodes := []*node{w.join("eu", "a", 1, 0), w.join("us", "a", 2, 0), w.join("us", "b", 3, 0), w.join("ap", "a", 4, 0)}
		sleep(900 * time.Millisecond)
		for _, n := range nodes {
			for _, p := range n.Peers() {
				if !p.Synced || p.AckedAt == 0 {
					t.Errorf("%s/%s of %s/%s: %+v", n.self.Region, n.self.Instance, p.Region, p.Instance, p)
				}
			}
			if len(n.Peers()) != 3 {
				t.Errorf("%s/%s knows %d", n.self.Region, n.self.Instance, len(n.Peers()))
			}
		}
	}, "eu", "us", "ap")
}

// An exchange gives the true difference of two clocks on a symmetric path.
func TestExchangeShowsTheOffset(t *testing.T) {
	bubble(t, func(w *world) {
		us := three(w)[1] // three seconds ahead of eu
		us.mu.Lock()
		defer us.mu.Unlock()
		seen := map[int64]bool{}
		for _, e := range us.exchanges {
			seen[((e.ReceivedUS-e.SentUS)+(e.RepliedUS-e.HeardUS))/2] = true
			if delay := (e.HeardUS - e.SentUS) - (e.RepliedUS - e.ReceivedUS); delay != 2*oneWay.Microseconds() {
				t.Errorf("a round trip of %d µs", delay)
			}
		}
		if !seen[-3_000_000] || !seen[-63_000_000] || len(seen) != 2 {
			t.Errorf("offsets of eu and ap: %v", seen)
		}
	}, "eu", "us", "ap")
}

func TestOneWayCutShowsInAcked(t *testing.T) {
	bubble(t, func(w *world) {
		nodes := three(w)
		eu, us := nodes[0], nodes[1]
		sleep(time.Second)
		cut := w.now()
		w.net.Set("eu", "us", meshtest.Link{Cut: true})
		sleep(5 * time.Second)
		if p := us.knows(eu); w.now()-p.ReceivedAt < 4*time.Second {
			t.Error("us hears eu across a cut")
		}
		p := eu.knows(us)
		if w.now()-p.ReceivedAt > time.Second {
			t.Error("eu does not hear us, though that way is open")
		}
		if p.AckedAt > cut || p.AckedAt < cut-meshsync.HeartbeatEvery {
			t.Errorf("cut at %v, eu believes that us heard what it sent at %v", cut, p.AckedAt)
		}
		w.net.Set("eu", "us", meshtest.Link{Latency: oneWay})
		sleep(2 * time.Second)
		p = eu.knows(us)
		if age := w.now() - p.AckedAt; age > 2*meshsync.HeartbeatEvery+2*oneWay {
			t.Errorf("healed, us heard eu %v ago", age)
		}
	}, "eu", "us", "ap")
}

// After a silence a process counts heartbeats anew, and only a new snapshot makes it whole.
func TestSilenceCostsTheDigest(t *testing.T) {
	bubble(t, func(w *world) {
		nodes := three(w)
		eu, us := nodes[0], nodes[1]
		w.net.Set("eu", "us", meshtest.Link{Cut: true})
		sleep(meshsync.SilentAfter + 100*time.Millisecond)
		c := eu.cell(5)
		eu.totals.Admit(3, c)
		sleep(time.Second)
		w.net.Set("us", "eu", meshtest.Link{Cut: true}) // requests are lost for now
		w.net.Set("eu", "us", meshtest.Link{Latency: oneWay})
		sleep(1100 * time.Millisecond)
		p := us.knows(eu)
		if p.Synced || p.Heartbeats < 1 || p.Heartbeats > 3 {
			t.Errorf("heard again for a second: %+v", p)
		}
		w.net.Set("us", "eu", meshtest.Link{Latency: oneWay})
		sleep(1100*time.Millisecond + 200*time.Millisecond + 2*oneWay)
		if p := us.knows(eu); !p.Synced {
			t.Errorf("asked again and again, still no digest: %+v", p)
		}
		if got := us.totals.Snapshot()[c]; got != 3 {
			t.Errorf("us counts %d of what was admitted in the silence", got)
		}
	}, "eu", "us", "ap")
}

// Single losses are no silence, whatever else is lost beside.
func TestALostBeatIsNoSilence(t *testing.T) {
	bubble(t, func(w *world) {
		nodes := three(w)
		eu, us := nodes[0], nodes[1]
		before, asked := us.knows(eu).Heartbeats, us.counter("regiond.sync.published", "kind", "request")
		for range 10 {
			w.net.Set("eu", "us", meshtest.Link{Cut: true})
			sleep(400 * time.Millisecond)
			w.net.Set("eu", "us", meshtest.Link{Latency: oneWay})
			sleep(1400 * time.Millisecond)
		}
		if p := us.knows(eu); !p.Synced || p.Heartbeats < before+25 {
			t.Errorf("before: %d beats; after: %+v", before, p)
		}
		gaps, asked := us.counter("regiond.sync.gaps", "region", "eu"), us.counter("regiond.sync.published", "kind", "request")-asked
		if gaps < 6 || gaps > 10 || asked != gaps {
			t.Errorf("%d gaps were seen, %d digests asked for", gaps, asked)
		}
	}, "eu", "us", "ap")
}

func TestDistrust(t *testing.T) {
	bubble(t, func(w *world) {
		us := three(w)[1]
		us.Resync()
		for _, p := range us.Peers() {
			if p.Synced || p.Heartbeats != 0 {
				t.Errorf("still trusted: %+v", p)
			}
		}
		sleep(200*time.Millisecond + 2*oneWay)
		for _, p := range us.Peers() {
			if !p.Synced {
				t.Errorf("not digested again: %+v", p)
			}
		}
	}, "eu", "us", "ap")
}

// A process that stood still finds all peers silent, says so, and begins anew.
func TestStandStill(t *testing.T) {
	bubble(t, func(w *world) {
		us := three(w)[1]
		us.jump.Add(int64(10 * time.Second))
		sleep(0)
		for _, p := range us.Peers() {
			if us.now()-p.ReceivedAt < 9*time.Second {
				t.Errorf("heard while it stood still: %+v", p)
			}
		}
		sleep(1500 * time.Millisecond)
		for _, p := range us.Peers() {
			if !p.Synced || p.Heartbeats > 4 {
				t.Errorf("not begun anew: %+v", p)
			}
		}
		if n := us.log.count("the mesh's tick came late: this process stood still or is overloaded"); n != 1 {
			t.Errorf("it was logged %d times", n)
		}
	}, "eu", "us", "ap")
}

func TestChangedTellsWhatAViewDependsOn(t *testing.T) {
	bubble(t, func(w *world) {
		nodes := three(w)
		eu, us := nodes[0], nodes[1]
		changed := func() bool {
			select {
			case <-us.Changed():
				return true
			default:
				return false
			}
		}
		changed()
		sleep(5 * time.Second)
		if changed() {
			t.Error("nothing has changed")
		}
		eu.mu.Lock()
		eu.view.Members = []string{"eu", "us"}
		eu.mu.Unlock()
		eu.HeartbeatSoon()
		sleep(oneWay)
		if !changed() {
			t.Error("eu's members have changed")
		}
		w.net.Set("eu", "us", meshtest.Link{Cut: true})
		sleep(2 * time.Second)
		changed()
		w.net.Set("eu", "us", meshtest.Link{})
		sleep(500 * time.Millisecond)
		if !changed() {
			t.Error("eu is heard again")
		}
		sleep(5 * time.Second)
		changed()
		eu.stop()
		sleep(oneWay)
		if !changed() {
			t.Error("eu left")
		}
	}, "eu", "us", "ap")
}

// Counters that wait for longer than a second are as good as silence: a view has to hear
// of it at once, and when they have gone out.
func TestChangedTellsOfTotalsThatWait(t *testing.T) {
	bubble(t, func(w *world) {
		nodes := three(w)
		eu, us := nodes[0], nodes[1]
		toldIn := func(d time.Duration) (after time.Duration) {
			for ; after < d; after += 10 * time.Millisecond {
				sleep(10 * time.Millisecond)
				select {
				case <-us.Changed():
					return after
				default:
				}
			}
			return d
		}
		sleep(5 * time.Second)
		toldIn(10 * time.Millisecond) // what is old
		eu.bus.Refuse(meshsync.SubjectUsage)
		eu.totals.Admit(1, eu.cell(1))
		if after := toldIn(3 * time.Second); after < time.Second || after > time.Second+meshsync.HeartbeatEvery+2*oneWay {
			t.Errorf("us is told %v after eu's totals began to wait", after)
		}
		if after := toldIn(3 * time.Second); after < 3*time.Second {
			t.Errorf("us is told again %v later, and nothing is new", after)
		}
		eu.bus.Refuse("")
		if after := toldIn(3 * time.Second); after > meshsync.TickEvery+2*oneWay {
			t.Errorf("us is told %v after the totals could go out", after)
		}
	}, "eu", "us", "ap")
}

func TestBeatsAreCoalesced(t *testing.T) {
	bubble(t, func(w *world) {
		eu := three(w)[0]
		beats := 0
		eu.bus.Spy(func(m meshsync.Message) {
			if m.Subject == meshsync.SubjectHeartbeat+"eu" {
				beats++
			}
		})
		for range 1000 {
			eu.HeartbeatSoon()
			sleep(time.Millisecond)
		}
		if beats < 48 || beats > 51 {
			t.Errorf("%d beats in a second", beats)
		}
	}, "eu", "us", "ap")
}
