package limiter

import (
	"context"
	"time"

	"github.com/regiond/regiond/quota"
)

// Global is what a limiter needs of the other regions. Its methods are called
// for each decision about a global limit; they never block, are safe for concurrent
// use, and do not keep the key.
type Global interface {
	// Ceiling is how far this region may go now under the global limit l of policy
	// p in the partition with this counter. explain asks for the terms.
	Ceiling(p *quota.Policy, l *quota.Limit, key *quota.CounterKey, explain bool) quota.Ceiling
	// Grows is how long from now until the ceiling reaches units, if nobody spends
	// anything meanwhile; at most l.Window.
	Grows(p *quota.Policy, l *quota.Limit, key *quota.CounterKey, units int64) time.Duration
	// Record publishes what the store held of the counter at its TIME storeUS, the zero
	// Counter for nothing, after each decision, charged or not. ctx is that of the
	// request if it was charged, for its span, and context.Background() otherwise.
	Record(ctx context.Context, p *quota.Policy, l *quota.Limit, key *quota.CounterKey, c quota.Counter, storeUS int64)
	// Local publishes what this process admitted in memory while the store was away,
	// for the request of ctx.
	Local(ctx context.Context, p *quota.Policy, l *quota.Limit, key *quota.CounterKey, units int64)
}
