package daemon

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/regiond/regiond/limiter"
	"github.com/regiond/regiond/limiter/memstore"
	"github.com/regiond/regiond/quota"
	"github.com/regiond/regiond/region"
	"github.com/regiond/regiond/region/keyfile"
)

// sealingLimiter has a store of its own and takes reservations.
func sealingLimiter(t *testing.T, s *limiter.Seal) *limiter.Limiter {
	t.Helper()
	l, err := limiter.New(limiter.Options{Store: memstore.New(memstore.Options{}), Logger: slog.New(slog.DiscardHandler), Seal: s, Config: limiter.Config{
		Region: "town", Default: &quota.Tenant{Policy: "llm"}, MaxUnknown: 10, Policies: []quota.Policy{{
			Name: "llm", EnforcePercent: -1, MaxTTL: time.Minute, MaxHold: 100,
			Limits: []quota.Limit{{Name: "tokens", Units: 100, Window: time.Minute, Counts: quota.CountsTokens}},
		}},
	}})
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// TestProcessesOfARegionOpenEachOthersReservations: without a shared secret by the key that Redis keeps, also after it was away or
// has lost it; what was sealed before stays open to who sealed it.
func TestProcessesOfARegionOpenEachOthersReservations(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var redis sync.Mutex
		kept, away := "", true // in Redis
		set := func(k string, a bool) {
			redis.Lock()
			defer redis.Unlock()
			kept, away = k, a
		}
		eval := func(_ context.Context, _, _ string, args ...any) (any, error) {
			redis.Lock()
			defer redis.Unlock()
			if away {
				return nil, errors.New("away")
			}
			if kept == "" {
				kept = fmt.Sprint(args[0])
			}
			return kept, nil
		}
		ctx, cancel := context.WithCancel(t.Context())
		process := func() *limiter.Limiter {
			s, share := newSeal(&config{keys: &keyfile.Keys{}, topology: &region.Topology{}}, eval)
			go func() { _ = share(ctx) }()
			return sealingLimiter(t, s)
		}
		a, b := process(), process()
		reserve := func(l *limiter.Limiter) string {
			return l.Reserve(ctx, []quota.Request{{Tenant: "acme", Reserve: true, Cost: 1}})[0].Decision.Reservation.ID
		}
		opens := func(when string, l *limiter.Limiter, id string, want bool) {
			t.Helper()
			if o := l.Settle(ctx, []quota.Claim{{Reservation: id, Actual: 1}}); (o[0].Err == nil) != want {
				t.Errorf("%s: %v, want it to open: %v", when, o[0].Err, want)
			}
		}
		synctest.Wait()
		early := reserve(a)
		opens("Redis away, its own", a, early, true)
		opens("Redis away, another's", b, early, false)
		set("", false)
		time.Sleep(sealRetry)
		synctest.Wait()
		opens("Redis back, of before", a, early, true)
		opens("Redis back", b, reserve(a), true)
		set("", false) // FLUSHALL
		time.Sleep(sealEvery)
		synctest.Wait()
		c := process()
		synctest.Wait()
		opens("a third process", c, reserve(a), true)
		opens("of the third", b, reserve(c), true)
		cancel()
		synctest.Wait()
	})
}

// TestSharedSecretSeals: processes of one deployment open each other's reservations by its secret, and those of another cluster
// with the same secret do not.
func TestSharedSecretSeals(t *testing.T) {
	seal := func(cluster string) *limiter.Limiter {
		s, share := newSeal(&config{keys: &keyfile.Keys{Partitions: []byte("0123456789abcdef")}, topology: &region.Topology{Cluster: cluster}}, nil)
		if share != nil {
			t.Error("something is to run")
		}
		return sealingLimiter(t, s)
	}
	here, there, stranger := seal("prod"), seal("prod"), seal("stage")
	id := here.Reserve(t.Context(), []quota.Request{{Tenant: "acme", Reserve: true, Cost: 1}})[0].Decision.Reservation.ID
	if o := there.Settle(t.Context(), []quota.Claim{{Reservation: id}}); o[0].Err != nil {
		t.Error(o[0].Err)
	}
	if o := stranger.Settle(t.Context(), []quota.Claim{{Reservation: id}}); o[0].Err == nil {
		t.Error("another cluster opens it")
	}
}
