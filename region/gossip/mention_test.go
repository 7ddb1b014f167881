package gossip

import (
	"log/slog"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/memberlist"
)

// A namesake that is mentioned is called every five seconds for a minute; it
// counts while it answers, and a little longer.
func TestMention(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := testRoster(t)
		me := Member{Region: "r0", Instance: "self", Boot: 100, Addr: "10.0.0.1:1"}
		c := &conflicts{self: me, metrics: r.metrics, wake: r.wake, quarrels: map[string]bool{}}
		node := func(boot int64) *memberlist.Node {
			return &memberlist.Node{Name: me.Name(), Addr: net.IPv4(10, 0, 0, 2), Port: 1, Meta: meta{boot: boot}.encode()}
		}
		if _, due := c.due(time.Now()); due || c.contested(time.Now()) {
			t.Error("called without a mention")
		}
		called := 0
		var last Member
		live := func(d time.Duration, answers bool) {
			for range d / s {
				if m, due := c.due(time.Now()); due {
					called++
					last = m
					if answers {
						c.answer(m, slog.New(slog.DiscardHandler))
					}
				}
				time.Sleep(s)
			}
		}
		c.NotifyConflict(node(100), node(90))
		live(30*s, false)
		if _, second := c.current(time.Now()); second || called != 6 || !c.contested(time.Now()) {
			t.Errorf("mentioned and silent: %d calls, a conflict %v, contested %v", called, second, c.contested(time.Now()))
		}
		live(2*time.Minute, false)
		if called != 12 || c.contested(time.Now()) {
			t.Errorf("a minute after the mention: %d calls, contested %v", called, c.contested(time.Now()))
		}
		c.NotifyConflict(node(100), node(90))
		live(5*time.Minute, true)
		if m, second := c.current(time.Now()); !second || m != last || m.Boot != 90 {
			t.Errorf("it answers: %+v, %v", m, second)
		}
		live(15*s, false)
		if _, second := c.current(time.Now()); second {
			t.Error("a conflict 15 seconds after the last answer")
		}
		// A younger one is its own problem; one who started with us the one's with
		// the larger address.
		for boot, want := range map[int64]bool{110: false, 100: false} {
			c.NotifyConflict(node(100), node(boot))
			live(10*s, true)
			if _, second := c.current(time.Now()); second != want {
				t.Errorf("boot %d: a conflict %v, want %v", boot, second, want)
			}
		}
	})
}
