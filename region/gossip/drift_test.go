package gossip_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/regiond/regiond/region/gossip"
)

func TestUpdateIsSeen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		ps := w.cluster(3)
		for len(ps[1].Changed()) > 0 {
			<-ps[1].Changed()
		}
		since := ps[1].member("r1/a").Since
		ps[0].hash("h2")
		ps[0].Update()
		took := w.await(30*s, func() bool {
			return ps[1].member("r1/a").ConfigHash == "h2" && ps[2].member("r1/a").ConfigHash == "h2"
		})
		t.Logf("an update is seen by all after %v", took)
		if took > 2*s {
			t.Errorf("an update is seen after %v, want at most 2s", took)
		}
		if len(ps[1].Changed()) != 1 {
			t.Error("Changed says nothing")
		}
		if got := ps[1].member("r1/a"); got.Since != since || got.State != gossip.Alive {
			t.Errorf("it is alive since %v, want %v as before", got.Since, since)
		}
		if got := ps[0].member("r1/a"); !got.Self || got.ConfigHash != "h2" || got.Version != "v1" {
			t.Errorf("it sees itself as %+v", got)
		}
	})
}

// A difference is known at once, an alarm after five minutes, over when it is.
func TestDrift(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		ps := w.cluster(3)
		reader, meter := metered()
		p := w.start("r4", "a", address(9), meter)
		w.await(10*s, func() bool { return whole(ps, 4) })
		if _, _, differ := p.Drift(); differ {
			t.Error("they differ from the start")
		}
		ps[2].hash("h2")
		ps[2].Update()
		begun := time.Now()
		w.await(10*s, func() bool { _, _, differ := p.Drift(); return differ })
		since, hashes, _ := p.Drift()
		want := map[string][]string{"h1": {"r1/a", "r2/a", "r4/a"}, "h2": {"r3/a"}}
		if diff := cmp.Diff(want, hashes); diff != "" || since.Before(begun) || since.After(begun.Add(2*s)) {
			t.Errorf("differ since %v (begun %v), %s", since, begun, diff)
		}
		const alarm = "processes differ in their configuration"
		time.Sleep(time.Until(since.Add(gossip.DriftAlarm)))
		if got := p.log.count(alarm); got != 0 {
			t.Errorf("%d alarms before five minutes have passed", got)
		}
		time.Sleep(time.Minute)
		if got := p.log.count(alarm); got != 1 {
			t.Errorf("%d alarms after six minutes, want one", got)
		}
		if got := value(t, reader, "regiond.config.drift", ""); got < 360 || got > 362 {
			t.Errorf("regiond.config.drift is %v s, want 360 to 362", got)
		}
		ps[2].crash() // whoever is dead does not differ
		w.await(30*s, func() bool { return p.log.count("configurations agree again") == 1 })
		if _, _, differ := p.Drift(); differ {
			t.Error("they still differ")
		}
	})
}
