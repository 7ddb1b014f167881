package daemon

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"time"

	"github.com/regiond/regiond/limiter"
)

// Processes seal the ids of reservations with a key that all of the deployment have: that of partitions, which outlasts
// the shared keys. Without one those of a region have a key in their Redis, and a process without Redis its own.

const (
	// sealKeyName is where a region keeps its key.
	sealKeyName = "rl:reservations"
	// sealScript keeps a key where there is none, and returns the one that is there.
	sealScript = `redis.call('SET', KEYS[1], ARGV[1], 'NX') return redis.call('GET', KEYS[1])`
	// sealEvery is how often a process offers its key to Redis, which may have lost it, and sealRetry how often while that is away.
	sealEvery, sealRetry = 10 * time.Second, 250 * time.Millisecond
)

// newSeal returns the seal of a process, and what has to run to share its key; nil if nothing.
func newSeal(c *config, eval func(ctx context.Context, script, key string, args ...any) (any, error)) (*limiter.Seal, component) {
	s := limiter.NewSeal()
	if c.keys.Partitions != nil {
		s.Share(append([]byte(c.topology.Cluster+" "), c.keys.Partitions...))
		return s, nil
	}
	if eval == nil {
		return s, nil
	}
	secret := make([]byte, 32)
	_, _ = rand.Read(secret) // never fails
	offer, shared := hex.EncodeToString(secret), ""
	return s, func(ctx context.Context) error {
		for {
			wait := sealRetry
			asked, cancel := context.WithTimeout(ctx, time.Second)
			reply, err := eval(asked, sealScript, sealKeyName, offer)
			cancel()
			if kept, _ := reply.(string); err == nil && kept != "" {
				wait = sealEvery
				if kept != shared {
					s.Share([]byte(kept))
					offer, shared = kept, kept
				}
			}
			select {
			case <-ctx.Done():
				return nil
			case <-time.After(wait):
			}
		}
	}
}
