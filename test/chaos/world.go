//go:build linux

package chaos

import (
	"encoding/base64"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/regiond/regiond/test/chaos/judge"
	"github.com/regiond/regiond/test/chaos/traffic"
	"github.com/regiond/regiond/test/chaos/wan"
)

// Windows of the world's limits.
const (
	HotWindow   = 4 * time.Second
	EdgeWindow  = time.Second
	QuietWindow = 3 * time.Second
	BoundWindow = 2 * time.Second
	HeldWindow  = 3 * time.Second
	MonthWindow = 720 * time.Hour
)

// Options are the parts of a world. The zero value is three regions on NATS servers
// of their own, joined by gateways, with ideal lines.
type Options struct {
	Binaries Binaries
	// Embedded has each regiond run its own NATS server.
	Embedded bool
	// Clock lets Redis's clock be stepped.
	Clock bool
	// Proxy puts a fault proxy between each regiond and its Redis.
	Proxy bool
	// Disk has each Redis log to disk, so that its data outlive it.
	Disk bool
	// Sentinel is a region whose Redis has a replica, and three sentinels that promote it
	// when the primary has been silent for a second; "" for none.
	Sentinel string
	// Line is what carries packets from each region to each other.
	Line wan.Link
	// Seed of the lines and the traffic.
	Seed uint64
}

// Names are the regions of a world.
func Names() []string { return []string{"eu-west", "us-east", "ap-south"} }

// World is a deployment at work. It is for the goroutine of its test.
type World struct {
	History *traffic.History
	Regions []*Region

	t       testing.TB
	options Options
	layout  Layout
	dir     string
	key     string // base64, as the first line of the key files
	router  *wan.Router
	stepped []judge.Loss // by clocks that were moved
}

// readyWithin bounds the start of a world, which takes some three seconds.
const readyWithin = 40 * time.Second

// Start starts a world and returns when all regions count on each other. It is taken
// down when t ends, whatever happens.
func Start(t testing.TB, o Options) *World {
	t.Helper()
	if lacks := Needs(); lacks != "" {
		t.Fatalf("scenarios need %s", lacks)
	}
	w := &World{History: traffic.NewHistory(), t: t, options: o, layout: Layout{Revision: 1, Weights: [3]int64{1, 1, 1}}, dir: t.TempDir()}
	w.key = newKey()
	for _, name := range Names() {
		if err := os.WriteFile(w.keyFile(name), []byte(w.key+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(w.natsPasswordFile(), []byte(natsPassword+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	w.router = wan.New(o.Seed)
	t.Cleanup(w.router.Close)
	for i, name := range Names() {
		r, err := w.settle(i, name)
		if err != nil {
			t.Fatal(err)
		}
		w.Regions = append(w.Regions, r)
	}
	w.Lines(func(_, _ int, _ wan.Link) wan.Link { return o.Line })
	t.Cleanup(w.end)
	for _, r := range w.Regions {
		if err := w.run(r); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := w.Await(readyWithin, "all regions count on each other", w.global); err != nil {
		w.dump()
		t.Fatal(err)
	}
	return w
}

// newKey is a line of a key file.
func newKey() string {
	key := make([]byte, 32)
	for i := range key {
		key[i] = byte(rand.Uint32())
	}
	return base64.StdEncoding.EncodeToString(key)
}

// keyFile is a region's key file.
func (w *World) keyFile(name string) string { return filepath.Join(w.dir, name+"-key") }

// end kills all processes and waits for them, so that none takes time from the next world.
// The kernel would do it with the namespaces, a moment later.
func (w *World) end() {
	for _, r := range w.Regions {
		all := r.processes()
		if r.bare != nil {
			all = append(all, r.bare)
		}
		for _, p := range all {
			p.kill()
		}
	}
}

// dump logs the processes' last output if there is no world to report on.
func (w *World) dump() {
	for _, r := range w.Regions {
		for _, p := range r.processes() {
			w.t.Logf("%s said last:\n%s", p.name, p.tail(1500))
		}
	}
}

// Lines sets every line to what a function makes of it.
func (w *World) Lines(change func(from, to int, l wan.Link) wan.Link) {
	w.t.Helper()
	for i := range w.Regions {
		for k := range w.Regions {
			if i == k {
				continue
			}
			if err := w.router.Set(i, k, change(i, k, w.router.Link(i, k))); err != nil {
				w.t.Fatal(err)
			}
		}
	}
}

// Await waits until check no longer objects, asking every few milliseconds, and
// returns when that was.
func (w *World) Await(within time.Duration, what string, check func() error) (time.Duration, error) {
	deadline := w.History.Now() + within
	again := time.NewTicker(20 * time.Millisecond)
	defer again.Stop()
	for {
		err := check()
		now := w.History.Now()
		if err == nil {
			return now, nil
		}
		if now > deadline {
			return now, fmt.Errorf("not within %v: %s: %w", within, what, err)
		}
		<-again.C
	}
}

// global objects unless every region counts on every other and has its Redis.
func (w *World) global() error {
	for _, r := range w.Regions {
		v, err := r.sees()
		if err != nil {
			return err
		}
		if v.Mode.Mode != "global" || !v.Store.Available {
			return fmt.Errorf("%s is in mode %q because of %q, Redis available: %v", r.Name, v.Mode.Mode, v.Mode.Reason, v.Store.Available)
		}
	}
	return nil
}

// regionsView is the used part of GET /v1/regions.
type regionsView struct {
	Mode struct {
		Mode   string `json:"mode"`
		Reason string `json:"reason"`
	} `json:"mode"`
	Store struct {
		Available bool `json:"available"`
	} `json:"store"`
}

// sees asks a region what it sees.
func (r *Region) sees() (regionsView, error) {
	var v regionsView
	err := r.ask(r.admin, "GET", "/v1/regions", "", &v)
	return v, err
}

// settle makes a region's namespace and joins it to the others.
func (w *World) settle(i int, name string) (*Region, error) {
	r := &Region{
		Name: name, number: i,
		addr:  netip.AddrFrom4([4]byte{10, 77, 0, byte(i + 1)}),
		other: netip.AddrFrom4([4]byte{10, 77, 0, byte(i + 101)}),
	}
	if err := r.open(w.t); err != nil {
		return nil, err
	}
	number, err := w.router.Attach(r.ns, netip.PrefixFrom(r.addr, 24), netip.PrefixFrom(r.other, 24))
	if err == nil && number != i {
		err = errors.New("regions are attached in order")
	}
	return r, err
}
