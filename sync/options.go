package sync

import (
	"iter"
	"log/slog"
	"time"

	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"

	"github.com/regiond/regiond/quota"
	"github.com/regiond/regiond/region/members"
	"github.com/regiond/regiond/sync/wire"
)

// Counters are the usage counters that the mesh replicates: a *ledger.Ledger, which documents the
// methods. Only the goroutine of Run calls them.
type Counters interface {
	Urgent() <-chan struct{}
	Take(entries int, all bool, number uint64) []wire.Group
	Unsent() time.Duration
	Checks() []trace.SpanContext
	Live(origin string, since uint64, entries int) iter.Seq[[]wire.Group]
	Names() []string
	ClockUS(region string, at time.Duration) (us int64, known bool)
	Fold(author string, clockUS int64, at time.Duration, groups []wire.Group, whole bool) error
	FoldReturned(clockUS int64, at time.Duration, groups []wire.Group) error
	Resets() map[string][]wire.Cut
	Sweep()
	Full() bool
}

// Options are what a Mesh is made of. Members, Key, Secret, Bus, Counters, Now, TimeUS, Regions,
// View, Logger and Meter are required. The funcs are called from the goroutine of Run
// and must return at once.
type Options struct {
	// Members is the table of processes, of which the mesh writes Bus. Each start of this
	// process, its Self, has another Boot.
	Members *members.Table
	// Key makes the ids in Counters; heartbeats carry its fingerprint.
	Key wire.Key
	// Secret signs all messages and seals the names of partitions, see SetSecret. It belongs to
	// the Mesh from then on.
	Secret   *wire.Secret
	Bus      Bus
	Counters Counters
	// Now is this process's monotonic clock.
	Now func() time.Duration
	// TimeUS is the store clock of our region, µs since the generation; always positive.
	TimeUS func() int64
	// Regions lists those of the topology in force. Messages of any other region
	// are refused, and its processes forgotten. Counters of regions from which nothing is
	// received are requested from the others.
	Regions func() []string
	// View is advertised by the next heartbeat.
	View func() Advertised
	// OnExchange is called with each measurement of a peer's clock. It may be nil.
	OnExchange func(peer quota.Process, e Exchange)
	Logger     *slog.Logger
	Meter      metric.Meter
	// Tracer makes the spans of messages; nil makes none, and costs nothing.
	Tracer trace.Tracer
}

// Receivers are the parts that send by a Mesh, and get what others send to them. Each may be
// nil. They are called as the funcs of Options are.
type Receivers struct {
	// Loans gets what processes of other regions send about loans, and the wants of siblings.
	// It owns what it is given.
	Loans func(l *wire.Loans)
	// Reset gets each message about a reset.
	Reset func(r *wire.Reset)
	// Top gets the newest payload that each other process gave to SendTop; its error refuses it.
	Top func(from quota.Process, payload []byte) error
	// Overrides gets each payload that another process gave to SendOverrides; its error refuses it.
	Overrides func(from quota.Process, payload []byte) error
}

// Advertised is the part of a heartbeat that the region's view decides; for the fields see
// wire.Heartbeat.
type Advertised struct {
	Members  []string
	Topology uint64
	Weights  []quota.Weight // nil unless they should be spelled out
}

// Exchange is one round trip by two store clocks, all in µs: SentUS and ReturnedUS by ours,
// ReceivedUS and RepliedUS by the peer's.
type Exchange struct {
	SentUS, ReceivedUS, RepliedUS, ReturnedUS int64
}
