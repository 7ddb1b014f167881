//go:build linux

package chaos

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/hashicorp/memberlist"

	"github.com/regiond/regiond/quota"
	"github.com/regiond/regiond/region/gossip"
	"github.com/regiond/regiond/region/members"
	"github.com/regiond/regiond/test/chaos/netns"
)

// cluster is that of the world's topology.
const cluster = "chaos"

// InventMembers has somebody with the key gossip as members of each region that do not exist.
func (w *World) InventMembers(name string) Fault {
	r := w.region(name)
	return w.hostile("members invented at "+name+", with the key", func(ctx context.Context) error {
		key, err := base64.StdEncoding.DecodeString(w.key)
		if err != nil {
			return err
		}
		var members sync.WaitGroup
		defer members.Wait()
		for i, of := range Names() {
			g, err := w.strangeMember(r.ns, of, key, netip.AddrFrom4([4]byte{127, 0, 1, byte(i + 1)}), r.gossip())
			if err != nil {
				return err
			}
			members.Go(func() { _ = g.Run(ctx) }) // it ends with ctx
		}
		return nil
	}, func(a *Achieved) error {
		if a.Beside = fmt.Sprintf("%d members invented", a.Invented); a.Invented == 0 {
			return errors.New("hostile: nobody has seen a member that was invented")
		}
		return nil
	})
}

// strangeMember is a process that is not of the world and gossips with it, as an instance of one of
// its regions, from an address in a region's network.
func (w *World) strangeMember(ns *netns.Namespace, region string, key []byte, from netip.Addr, seed string) (*gossip.Gossip, error) {
	t := &within{ns: ns}
	err := ns.Do(func() (err error) {
		t.NetTransport, err = memberlist.NewNetTransport(&memberlist.NetTransportConfig{
			BindAddrs: []string{from.String()}, BindPort: gossipPort, Logger: slog.NewLogLogger(slog.DiscardHandler, slog.LevelDebug),
		})
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("a strange member: %w", err)
	}
	return gossip.New(gossip.Options{
		Members: members.New(quota.Process{Region: region, Instance: "invented", Boot: time.Now().UnixMicro()}),
		Cluster: cluster, Keys: [][]byte{key}, Transport: t,
		ConfigHash: func() string { return "" }, Seeds: func() []string { return []string{seed} }, Regions: func(string) bool { return true },
	})
}

// within is memberlist's transport in a region's network.
type within struct {
	*memberlist.NetTransport
	ns *netns.Namespace
}

// Shutdown implements memberlist.Transport. The sockets' goroutines end only while somebody takes
// what they have received.
func (t *within) Shutdown() error {
	ended := make(chan error, 1)
	go func() { ended <- t.NetTransport.Shutdown() }()
	for {
		select {
		case c := <-t.StreamCh():
			_ = c.Close()
		case <-t.PacketCh():
		case err := <-ended:
			return err
		}
	}
}

// DialTimeout implements memberlist.Transport.
func (t *within) DialTimeout(addr string, timeout time.Duration) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	return t.ns.Dial(ctx, "tcp", addr)
}

// DialAddressTimeout implements memberlist.NodeAwareTransport.
func (t *within) DialAddressTimeout(a memberlist.Address, timeout time.Duration) (net.Conn, error) {
	return t.DialTimeout(a.Addr, timeout)
}
