package redisstore

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/regiond/regiond/limiter/limitertest"
	"github.com/regiond/regiond/quota"
	"github.com/regiond/regiond/test/redisserver"
)

func watched(t *testing.T) (*redisserver.Watched, Options) {
	w := redisserver.StartWatched(t, time.Second)
	return w, Options{Mode: quota.RedisSentinel, Addrs: w.Addrs(), Master: redisserver.Master}
}

// The primary stops under load, another takes its place, and the old one comes back: everybody
// is answered, nothing is charged twice, and decisions are exact again soon.
func TestSentinelFailover(t *testing.T) {
	for name, row := range map[string]struct{ stop, back func(*redisserver.Server) }{
		"it dies":           {(*redisserver.Server).Kill, nil},
		"it freezes, thaws": {(*redisserver.Server).Freeze, (*redisserver.Server).Thaw},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel() // it mostly waits for failovers
			w, options := watched(t)
			s, _ := nodeSetStore(t, options)
			st := startTraffic(t, s)
			st.flowing(t, everybody)
			old := w.Primary()
			row.stop(old)
			w.AwaitPrimary(old)
			if took := st.flowing(t, everybody); row.back == nil && took > 2*time.Second {
				t.Errorf("exact again only %v after the sentinels named another", took)
			}
			if row.back != nil {
				row.back(old)
				awaitReplica(t, old)
				st.flowing(t, everybody)
			}
			judgeFailovers(t, st, w)
		})
	}
}

// A replica that was behind takes over: exactly what Redis had lost is admitted
// again, and the loss is counted.
func TestSentinelLosesWrites(t *testing.T) {
	t.Parallel() // it mostly waits for failovers
	w, options := watched(t)
	s, count := nodeSetStore(t, options)
	old := w.Primary()
	losses(t, s, count, lossy{old: old, heir: w.Servers[1], takeOver: func() *redisserver.Server { return w.AwaitPrimary(old) }})
}

// Sentinels that require a password name the primary to those who have it, and to nobody else.
func TestSentinelAsksForPassword(t *testing.T) {
	t.Parallel() // it mostly waits for failovers
	w, o := watched(t)
	for _, sentinel := range w.Sentinels {
		admit(t, sentinel, []string{"watch", "on", ">seen", "allchannels", "+@all"})
		admit(t, sentinel, []string{"default", "-sentinel"})
	}
	stranger, _ := nodeSetStore(t, o)
	if _, err := limitertest.DecideOne(stranger, limitertest.OneCall("acme", 5, 1)); err == nil {
		t.Error("sentinels named the primary to one without a password")
	}
	o.SentinelUsername, o.SentinelPassword = "watch", "seen"
	known, _ := nodeSetStore(t, o)
	everything(t, known)
}

// judgeFailovers judges traffic on the primary that the sentinels name. On a machine where
// servers have to wait they may fail over again, and each time what was not sent yet is lost.
func judgeFailovers(t *testing.T, st *traffic, w *redisserver.Watched) {
	t.Helper()
	st.stop()
	n := w.Failovers()
	t.Logf("%d failovers", n)
	st.judge(t, func(string) *redis.Client { return w.Primary().Client() }, func(i int) int64 { return n * unsent(everyone())(i) })
}

func everyone() (on [trafficTenants]bool) {
	for i := range on {
		on[i] = true
	}
	return on
}
