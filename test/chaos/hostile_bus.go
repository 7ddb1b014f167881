//go:build linux

package chaos

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/regiond/regiond/quota"
	meshsync "github.com/regiond/regiond/sync"
	"github.com/regiond/regiond/sync/wire"
	"github.com/regiond/regiond/test/chaos/traffic"
)

// forgeEvery is how often a hostile peer publishes.
const forgeEvery = 10 * time.Millisecond

// NeighbourOnNATS has somebody on a region's NATS, who has its rights and no key, forge messages of
// every kind, and change, cut, repeat and redirect all that passes.
func (w *World) NeighbourOnNATS(name string) Fault {
	return w.hostile("a neighbour on the NATS of "+name, func(ctx context.Context) error {
		return w.joined(ctx, name, func(nc *nats.Conn) error {
			random := rand.New(rand.NewPCG(w.options.Seed, 4))
			if _, err := nc.Subscribe("rl.v1.>", func(m *nats.Msg) { mishandle(nc, m, name, random) }); err != nil {
				return err
			}
			return w.forge(ctx, nc, name, newKey())
		})
	}, func(a *Achieved) error {
		if a.Refused["bus mac"] < 100 {
			return fmt.Errorf("hostile: %d messages were refused for their MAC", a.Refused["bus mac"])
		}
		return nil
	})
}

// StolenKey has somebody on a region's NATS, who has its rights and the key, claim a thousand times a
// limit in its name, in many generations. Healed, it leaves.
func (w *World) StolenKey(name string) Fault {
	var counted int64
	var short []string
	return w.hostile("a holder of the key at "+name, func(ctx context.Context) error {
		return w.joined(ctx, name, func(nc *nats.Conn) error {
			f, err := w.forger(name, w.key)
			f.self.Instance = "stolen" // beside the region's own
			publish := func(subject string, data []byte) error { return nc.Publish(subject, f.secret.Sign(subject, data)) }
			for ; err == nil && ctx.Err() == nil; pause(ctx, forgeEvery) {
				if err = publish(meshsync.SubjectUsage+name, f.usage(traffic.Hot)); err == nil && f.seq%25 == 0 {
					var n int64
					n, err = w.mostCounted(name, traffic.Hot)
					counted = max(counted, n)
				}
			}
			return errors.Join(err, publish(meshsync.SubjectHeartbeat+name, f.leave()), nc.Flush())
		})
	}, func(a *Achieved) error {
		for _, r := range w.Regions {
			if excess, err := r.metric(`regiond_peer_excess_units_total\{.*\}`); r.Name != name && (err != nil || excess < claimed/2) {
				short = append(short, fmt.Sprintf("%s reports an excess of %v, %v", r.Name, excess, err))
			}
		}
		a.Beside = fmt.Sprintf("%d units of %d claimed count, of a limit of %d", counted, claimed, HotUnits)
		if counted != HotUnits || len(short) > 0 {
			return fmt.Errorf("hostile: %s; %v", a.Beside, short)
		}
		return nil
	})
}

// mostCounted is the most that another region counts of a region's usage of the first tenant of a class.
func (w *World) mostCounted(name, class string) (most int64, err error) {
	for _, r := range w.Regions {
		if r.Name == name {
			continue
		}
		peers, err := r.believes(class + "-00")
		if err != nil {
			return 0, err
		}
		most = max(most, peers[name])
	}
	return most, nil
}

// joined does something on a region's NATS, with the rights of its regiond.
func (w *World) joined(ctx context.Context, name string, do func(nc *nats.Conn) error) error {
	nc, err := w.joinBus(name)
	if err != nil {
		return err
	}
	defer nc.Close()
	err = do(nc)
	<-ctx.Done()
	return err
}

// mishandle publishes a message as its region, changed, cut, whole, and under its own subject.
func mishandle(nc *nats.Conn, m *nats.Msg, name string, random *rand.Rand) {
	changed := append([]byte(nil), m.Data...)
	changed[random.IntN(len(changed))] ^= 1 << random.IntN(8)
	own := meshsync.SubjectUsage + name
	for _, data := range [][]byte{changed, m.Data[:len(m.Data)-1-random.IntN(len(m.Data)-1)], m.Data} {
		_ = nc.Publish(own, data)
		_ = nc.Publish(m.Subject, data) // only the region's own is permitted
	}
}

// forge publishes messages of every kind in a region's name, signed by a key.
func (w *World) forge(ctx context.Context, nc *nats.Conn, name, key string) error {
	f, err := w.forger(name, key)
	for ; err == nil && ctx.Err() == nil; pause(ctx, forgeEvery) {
		for _, m := range []struct {
			subject string
			data    []byte
		}{
			{meshsync.SubjectUsage + name, f.usage(traffic.Quiet, traffic.Ledger)},
			{meshsync.SubjectHeartbeat + name, f.leave()},
			{meshsync.SubjectLoan + name + "." + meshsync.EveryRegion, wire.Append(nil, &wire.Loans{Head: wire.Head{From: f.self, Seq: f.next()}})},
		} {
			err = errors.Join(err, nc.Publish(m.subject, f.secret.Sign(m.subject, m.data)))
		}
	}
	return err
}

// forger writes messages in the name of a region.
type forger struct {
	self   quota.Process
	key    wire.Key
	secret *wire.Secret
	seq    uint64
}

func (w *World) forger(name, key string) (*forger, error) {
	secret, err := base64.StdEncoding.DecodeString(key)
	if err != nil {
		return nil, err
	}
	f := &forger{self: quota.Process{Region: name, Instance: "one", Boot: time.Now().UnixMicro()}, key: wire.NewKey(secret, cluster)}
	f.secret, err = wire.NewSecret([][]byte{secret}, cluster)
	return f, err
}

func (f *forger) next() uint64 {
	f.seq++
	return f.seq
}

// window is that of a class's global limit.
func window(class string) time.Duration {
	return map[string]time.Duration{traffic.Hot: HotWindow, traffic.Quiet: QuietWindow, traffic.Ledger: 720 * time.Hour}[class]
}

// usage claims a million units of the first tenant of each class, in a generation of its own.
func (f *forger) usage(classes ...string) []byte {
	now := time.Now().UnixMicro()
	u := &wire.Usage{Head: wire.Head{From: f.self, Seq: f.next()}, TimeUS: now}
	u.Number = f.seq
	for _, class := range classes {
		length := window(class).Microseconds()
		key := quota.CounterKey{Tenant: class + "-00", Policy: class, Limit: "limit", Partition: string(quota.AppendPartition(nil, &quota.Limit{}, nil))}
		u.Groups = append(u.Groups, wire.Group{
			Limit: class + ".limit", WindowUS: length, Bucket: now / length,
			IDs: []uint64{f.key.CounterID(&key)}, Generations: []int64{now - int64(f.seq%40)*2_000_000}, Units: []int64{claimed},
		})
	}
	return wire.Append(nil, u)
}

// claimed is how many units a forged counter has.
const claimed = 1_000_000

// leave ends the region's process.
func (f *forger) leave() []byte {
	return wire.Append(nil, &wire.Heartbeat{
		Head: wire.Head{From: f.self, Seq: f.next()}, TimeUS: time.Now().UnixMicro(), Members: []string{f.self.Region}, Leaving: true,
	})
}
