package natsbus_test

import (
	"encoding/binary"
	"errors"
	"strings"
	"syscall"
	"testing"
	"time"

	meshsync "github.com/regiond/regiond/sync"
	"github.com/regiond/regiond/sync/natsbus"
	"github.com/regiond/regiond/test/capture"
	"github.com/regiond/regiond/test/meters"
	"github.com/regiond/regiond/test/ports"
)

const (
	usageEU = "rl.v1.usage.eu"
	usageUS = "rl.v1.usage.us"
	beatEU  = "rl.v1.heartbeat.eu"
)

// pair is two regions at one server, connected.
func pair(t *testing.T, url string) (eu, us *natsbus.Bus) {
	t.Helper()
	eu, _ = startBus(t, natsbus.Options{URLs: []string{url}, Region: "eu"})
	us, _ = startBus(t, natsbus.Options{URLs: []string{url}, Region: "us"})
	receive(t, eu.Gaps(), "the first connection is a gap")
	receive(t, us.Gaps(), "the first connection is a gap")
	bothWays(t, eu, us)
	return eu, us
}

// bothWays waits until messages cross in both directions.
func bothWays(t *testing.T, eu, us *natsbus.Bus) {
	t.Helper()
	crosses(t, eu, us, usageEU)
	crosses(t, us, eu, usageUS)
}

// publisher publishes as fast as it can until stopped, and remembers the slowest
// call and how often the bus refused.
type publisher struct {
	stop, done       chan struct{}
	slowest          time.Duration
	refused, refusal int
}

func publish(b *natsbus.Bus, data []byte, pause time.Duration) *publisher {
	p := &publisher{stop: make(chan struct{}), done: make(chan struct{})}
	go func() {
		defer close(p.done)
		ticker := time.NewTicker(pause)
		defer ticker.Stop()
		for {
			select {
			case <-ticker.C:
			case <-p.stop:
				return
			}
			before := time.Now()
			err := b.Publish(usageEU, data)
			p.slowest = max(p.slowest, time.Since(before))
			if err != nil {
				p.refused++
			}
			if errors.Is(err, natsbus.ErrFull) {
				p.refusal++
			}
		}
	}()
	return p
}

func (p *publisher) end() *publisher {
	close(p.stop)
	<-p.done
	return p
}

// A caller of Publish never waits for the server, and the bus finds one that is
// back.
func TestServerKilled(t *testing.T) {
	t.Parallel()
	p := startNATS(t, "127.0.0.1:0")
	eu, us := pair(t, p.url())

	load := publish(eu, make([]byte, 16<<10), time.Millisecond)
	p.kill()
	await(t, "the loss is noticed", func() bool { return !eu.Connected() && !us.Connected() })
	if err := eu.Publish(usageEU, nil); !errors.Is(err, natsbus.ErrDisconnected) {
		t.Errorf("Publish without a server: %v, want ErrDisconnected", err)
	}
	if s := eu.Status(); s.LastError == "" || s.URL != "" {
		t.Errorf("status without a server is %+v", s)
	}

	startNATS(t, p.address)
	back := time.Now()
	receive(t, eu.Gaps(), "messages may have been missed")
	receive(t, us.Gaps(), "messages may have been missed")
	t.Logf("both were back after %v", time.Since(back).Round(time.Millisecond))
	if slowest := load.end().slowest; slowest > time.Second {
		t.Errorf("a call of Publish took %v", slowest)
	}
	bothWays(t, eu, us)
	if s := eu.Status(); !s.Connected || s.URL != p.url() || s.LastError != "" {
		t.Errorf("status when back is %+v", s)
	}
}

// A frozen server takes bytes until its socket is full, and then none: the worst
// that can happen to a writer. 256 KiB a millisecond fill it soon.
func TestServerFrozen(t *testing.T) {
	t.Parallel()
	const freeze = 4 * time.Second
	p := startNATS(t, "127.0.0.1:0")
	eu, us := pair(t, p.url())

	load := publish(eu, make([]byte, 256<<10), time.Millisecond)
	p.signal(t, syscall.SIGSTOP)
	thaw := time.After(freeze)
	// One by writes that time out, the other, which publishes nothing, by pings.
	await(t, "the frozen server is noticed", func() bool { return !eu.Connected() && !us.Connected() })
	<-thaw
	p.signal(t, syscall.SIGCONT)
	receive(t, eu.Gaps(), "messages may have been missed")
	receive(t, us.Gaps(), "messages may have been missed")
	load.end()
	if load.slowest > freeze/4 {
		t.Errorf("a call of Publish took %v while the server was frozen for %v", load.slowest, freeze)
	}
	if load.refusal == 0 {
		t.Error("the queue was never full, so the socket never was: the test proves nothing")
	}
	t.Logf("the slowest call took %v; %d were refused", load.slowest, load.refused)
	bothWays(t, eu, us)
}

// A process that ends publishes what is queued, and does not wait for a server that
// does not listen.
func TestRunEnds(t *testing.T) {
	t.Parallel()
	p := startNATS(t, "127.0.0.1:0")
	us, _ := startBus(t, natsbus.Options{URLs: []string{p.url()}, Region: "us"})
	eu, stop := startBus(t, natsbus.Options{URLs: []string{p.url()}, Region: "eu"})
	crosses(t, eu, us, usageEU)
	for range 100 {
		if err := eu.Publish(usageEU, []byte("bye")); err != nil {
			t.Fatal(err)
		}
	}
	stop()
	for n := 0; n < 100; {
		if string(receive(t, us.Messages(), "the last messages").Data) == "bye" {
			n++
		}
	}

	eu, stop = startBus(t, natsbus.Options{URLs: []string{p.url()}, Region: "eu"})
	await(t, "the bus is connected", eu.Connected)
	p.signal(t, syscall.SIGSTOP)
	for !errors.Is(eu.Publish(usageEU, make([]byte, 1<<20)), natsbus.ErrFull) {
		continue // until neither socket nor queue takes more
	}
	before := time.Now()
	stop()
	if took := time.Since(before); took > 2500*time.Millisecond {
		t.Errorf("leaving a frozen server took %v, want half a second", took)
	} else {
		t.Logf("leaving a frozen server took %v", took.Round(time.Millisecond))
	}
}

// A process may start before its NATS.
func TestServerAbsentAtStart(t *testing.T) {
	t.Parallel()
	address := ports.Addr(t)
	log := &capture.Log{}
	b, stop := startBus(t, natsbus.Options{URLs: []string{"nats://user:hush@" + address}, Region: "eu", Logger: logger(log)})
	await(t, "the status shows why there is no connection", func() bool { return strings.Contains(b.Status().LastError, "refused") })
	if b.Connected() || b.Status().Since.IsZero() {
		t.Errorf("status without a server is %+v", b.Status())
	}

	startNATS(t, address)
	back := time.Now()
	await(t, "the server is found", func() bool { return b.Connected() && b.Status().Connected })
	t.Logf("found after %v", time.Since(back).Round(time.Millisecond))
	if got, want := b.Status().URL, "nats://"+address; got != want {
		t.Errorf("the status shows %s, want %s", got, want)
	}
	stop()
	if n := strings.Count(log.String(), "\n"); n != 2 || strings.Contains(log.String(), "hush") {
		t.Errorf("the log should have one line for the failure, one for the connection, and no password:\n%s", log)
	}
}

// What one process publishes arrives in its order, also over several subjects.
func TestOrderAcrossSubjects(t *testing.T) {
	p := startNATS(t, "127.0.0.1:0")
	eu, us := pair(t, p.url())
	const n = 5000
	sent := make(chan error, 1)
	go func() {
		for i := range uint64(n) {
			err := natsbus.ErrFull
			for errors.Is(err, natsbus.ErrFull) { // this test wants all of them there
				err = eu.Publish([]string{usageEU, beatEU, "rl.v1.snapshot.us"}[i%3], binary.BigEndian.AppendUint64(nil, i))
			}
			if err != nil {
				sent <- err
				return
			}
		}
		sent <- nil
	}()
	for want := range uint64(n) {
		m := receive(t, us.Messages(), "the next message")
		if got := binary.BigEndian.Uint64(m.Data); got != want {
			t.Fatalf("message %d arrived where %d was due", got, want)
		}
	}
	if err := <-sent; err != nil {
		t.Fatal(err)
	}
}

// A bus receives what its region subscribes to, and nothing that it published itself.
func TestSubjects(t *testing.T) {
	p := startNATS(t, "127.0.0.1:0")
	eu, us := pair(t, p.url())
	for _, subject := range []string{
		usageEU, "rl.v1.snapshot.ap", "rl.v1.other.eu", "rl.v1.usage.eu.more", "rl.v2.usage.eu", "rl.v1.snapshot.us",
	} {
		if err := eu.Publish(subject, []byte("single")); err != nil {
			t.Fatal(err)
		}
	}
	for {
		m := receive(t, us.Messages(), "the request that is for us")
		if m.Subject == usageEU {
			continue
		}
		if m.Subject != "rl.v1.snapshot.us" {
			t.Errorf("us received %s", m.Subject)
		}
		break
	}
	// us has received it, so the server has delivered it to all its subscribers.
	if err := us.Publish(usageUS, []byte("last")); err != nil {
		t.Fatal(err)
	}
	for {
		m := receive(t, eu.Messages(), "the last message")
		if m.Subject != usageUS {
			t.Errorf("eu received %s, which only it has published", m.Subject)
		}
		if string(m.Data) == "last" {
			return
		}
	}
}

// What Publish refuses never reaches the connection.
func TestPublishRefuses(t *testing.T) {
	c := meters.New()
	e, _ := startEmbedded(t, natsbus.EmbeddedOptions{Name: "eu"})
	b, stop := startBus(t, natsbus.Options{Server: e, Region: "eu", Meter: c.Meter})
	await(t, "the bus is connected", b.Connected)
	if got := c.Of(t, "regiond.bus.connected"); got != 1 {
		t.Errorf("regiond.bus.connected is %v", got)
	}
	if err := b.Publish(usageEU, make([]byte, natsbus.MaxMessage+1)); !errors.Is(err, meshsync.ErrTooLarge) {
		t.Errorf("Publish of too much: %v, want ErrTooLarge", err)
	}
	if err := b.Publish(usageEU, make([]byte, natsbus.MaxMessage)); err != nil {
		t.Errorf("Publish of the most: %v", err)
	}
	if err := b.Publish(usageEU, make([]byte, natsbus.MaxMessage), meshsync.Field{Name: "a", Value: "b"}); !errors.Is(err, meshsync.ErrTooLarge) {
		t.Errorf("Publish of the most with a header: %v, want ErrTooLarge", err)
	}
	stop()
	if err := b.Publish(usageEU, nil); !errors.Is(err, natsbus.ErrDisconnected) {
		t.Errorf("Publish after the end: %v, want ErrDisconnected", err)
	}
	for reason, want := range map[string]int64{"too_large": 2, "disconnected": 1, "full": 0} {
		if got := int64(c.Of(t, "regiond.bus.dropped", "reason", reason)); got != want {
			t.Errorf("%d dropped as %s, want %d", got, reason, want)
		}
	}
}
