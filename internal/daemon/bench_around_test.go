//go:build unix

package daemon

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"go.opentelemetry.io/otel/metric/noop"

	"github.com/regiond/regiond/quota"
	"github.com/regiond/regiond/region/view"
	meshsync "github.com/regiond/regiond/sync"
	"github.com/regiond/regiond/sync/ledger"
	"github.com/regiond/regiond/sync/natsbus"
	"github.com/regiond/regiond/sync/wire"
)

// benchSelf is the region that is measured, benchPeers are those around it.
const benchSelf = "eu-west"

func benchPeers() []string { return []string{"us-east", "ap-south"} }

// surround is a NATS server and the other regions, as far as their messages go:
// each a mesh with a crowd. What they would do with what they hear is done on
// other machines, so here it is dropped.
func (c *benchChild) surround(ctx context.Context) error {
	server, err := natsbus.NewEmbedded(natsbus.EmbeddedOptions{Name: "around", ClientAddr: "127.0.0.1:0"})
	if err != nil {
		return err
	}
	stack := []func(context.Context) error{server.Run}
	for _, name := range benchPeers() {
		peer, err := newBenchPeer(name, c.Crowd, server)
		if err != nil {
			return err
		}
		stack = append(stack, peer.bus.Run, peer.mesh.Run, peer.run)
	}
	var telling sync.WaitGroup
	defer telling.Wait()
	telling.Go(func() {
		select {
		case <-ctx.Done():
		case <-server.Ready():
			fmt.Println(server.ClientAddr())
		}
	})
	return runStack(ctx, stack)
}

// benchPeer is one of them.
type benchPeer struct {
	bus   *natsbus.Bus
	mesh  *meshsync.Mesh
	crowd *benchCrowded
}

func newBenchPeer(name string, c benchCrowd, server *natsbus.Embedded) (*benchPeer, error) {
	began := time.Now()
	now := func() time.Duration { return time.Since(began) }
	timeUS := func() int64 { return time.Now().UnixMicro() }
	self := quota.Process{Region: name, Instance: "one", Boot: timeUS()}
	limit := benchLimit()
	totals, err := ledger.New(ledger.Options{
		Self: name, Boot: self.Boot, Now: now, Regions: func() int { return 1 + len(benchPeers()) },
		Limit: func(string) (int64, bool) { return limit.Units, true },
	})
	if err != nil {
		return nil, err
	}
	p := &benchPeer{crowd: newBenchCrowded(c, totals, timeUS)}
	p.crowd.fill()
	var err2 error
	p.bus, err = natsbus.New(natsbus.Options{Server: server, Region: name})
	p.mesh, err2 = meshsync.New(meshsync.Options{
		Self: self, Key: p.crowd.key, Bus: p.bus, Totals: deaf{totals}, Now: now, TimeUS: timeUS,
		Known:  func(region string) bool { return region == benchSelf || slices.Contains(benchPeers(), region) },
		View:   seesAll,
		Logger: slog.New(slog.DiscardHandler), Meter: noop.Meter{},
	})
	return p, errors.Join(err, err2)
}

func (p *benchPeer) run(ctx context.Context) error {
	p.crowd.run(ctx)
	return nil
}

// deaf is a ledger that keeps nothing of what others say.
type deaf struct{ *ledger.Ledger }

// Fold implements sync.Totals.
func (deaf) Fold(string, int64, time.Duration, []wire.Group) error { return nil }

// seesAll is the view of a region that sees all others.
func seesAll() meshsync.Advertised {
	members := append(benchPeers(), benchSelf)
	slices.Sort(members)
	var weights []quota.Weight
	for _, name := range append([]string{benchSelf}, benchPeers()...) {
		weights = append(weights, quota.Weight{Region: name, Weight: 1})
	}
	return meshsync.Advertised{Members: members, Topology: view.Hash(weights)}
}

// benchTopology is the file of the measured region: one of three that are joined by
// the NATS at an address, or, without one, alone. policies ends the file.
func benchTopology(redis, nats, policies string) string {
	b := &strings.Builder{}
	fmt.Fprintf(b, "cluster: %s\nlog_level: error\nregions:\n", benchCluster)
	region := func(name, nats string) {
		fmt.Fprintf(b, "  - {name: %s, weight: 1, http: %q, admin: %q, redis: {addrs: [%q]}%s}\n",
			name, "127.0.0.1:0", "127.0.0.1:0", redis, nats)
	}
	if nats == "" {
		region(benchSelf, "")
	} else {
		for _, name := range append([]string{benchSelf}, benchPeers()...) {
			region(name, fmt.Sprintf(", nats: {urls: [%q]}", "nats://"+nats))
		}
	}
	b.WriteString(policies)
	return b.String()
}

// benchStandard is the policy of the benchmarks of the mesh, for any number of tenants.
func benchStandard() string {
	l := benchLimit()
	return fmt.Sprintf("policies:\n  - name: standard\n    limits: [{name: %s, units: %d, per: %v, scope: %v}]\n",
		l.Name, l.Units, l.Window, l.Scope) + "tenants: {default: {policy: standard}}\nmax_unknown: 1000000\n"
}
