package sync

import (
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"time"

	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"

	"github.com/regiond/regiond/quota"
	"github.com/regiond/regiond/region/members"
	"github.com/regiond/regiond/sync/wire"
)

// Counters are the usage counters that the mesh replicates; package ledger implements
// them. Only the goroutine of Run calls them.
type Counters interface {
	// Urgent has something in it once a change should not wait for the next tick.
	Urgent() <-chan struct{}
	// Take returns at most that many changed counters and considers them published, from
	// the message with that number on: the urgent ones, or all.
	Take(entries int, all bool, number uint64) []wire.Group
	// Unsent is the age of the oldest change that was not taken.
	Unsent() time.Duration

	// Live walks over the live counters of a region, in pieces of at most that many: of our
	// own those that Take gave with a number above since, with 0 all.
	Live(origin string, since uint64, entries int) iter.Seq[[]wire.Group]
	// Names lists all regions that have or had counters, and our own.
	Names() []string
	// ClockUS is the store clock of a region at our time at, by what Fold was given
	// last; false: it was given nothing.
	ClockUS(region string, at time.Duration) (us int64, known bool)

	// Fold merges counters of what author has admitted; its store clock was clockUS at our
	// time at. On an error nothing is merged. Our own region as the author means a
	// sibling.
	Fold(author string, clockUS int64, at time.Duration, groups []wire.Group) error
	// FoldWhole merges counters of which earlier messages are missing, like Fold.
	FoldWhole(author string, clockUS int64, at time.Duration, groups []wire.Group) error
	// FoldReturned merges what a peer remembers of our own counters, like FoldWhole.
	FoldReturned(clockUS int64, at time.Duration, groups []wire.Group) error
	// Sweep frees what has ended. It is called at each tick.
	Sweep()
	// Full reports that something was rejected lately because there was no room.
	Full() bool
}

// Options are what a Mesh is made of. Members, Key, Secret, Bus, Counters, Now, TimeUS, Known, Regions,
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
	// Known reports whether a region belongs to the topology in force. Messages of
	// any other are refused, and its processes forgotten.
	Known func(region string) bool
	// Regions lists the topology in force, ours included or not. Counters of regions from
	// which nothing is received are requested from the others.
	Regions func() []string
	// View is advertised by the next heartbeat.
	View func() Advertised
	// OnExchange is called with each measurement of a peer's clock. It may be nil.
	OnExchange func(peer quota.Process, e Exchange)
	// Resets gives the cuts of all tenants. It may be nil.
	Resets func() iter.Seq2[string, []wire.Cut]
	// RecoverCounters is called when our counters were requested while a sibling,
	// admissions only the store knows, is silent. It may be nil.
	RecoverCounters func()
	Logger          *slog.Logger
	Meter           metric.Meter
	// Tracer makes the spans of messages; nil makes none, and costs nothing.
	Tracer trace.Tracer
	// Checks gives the sampled checks whose usage Counters.Take gave, once each: the next
	// message is linked to them. It may be nil.
	Checks func() []trace.SpanContext
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

func (o *Options) validate() error {
	switch {
	case o.Members == nil || o.Bus == nil || o.Counters == nil || o.Secret == nil || o.Now == nil || o.TimeUS == nil ||
		o.Known == nil || o.Regions == nil || o.View == nil || o.Logger == nil || o.Meter == nil:
		return errors.New("mesh: Members, Bus, Counters, Secret, Now, TimeUS, Known, Regions, View, Logger and Meter are required")
	case o.Members.Self.Region == "" || o.Members.Self.Instance == "" || o.Members.Self.Boot <= 0:
		return fmt.Errorf("mesh: Members.Self is incomplete: %+v; region, instance and boot are required", o.Members.Self)
	}
	return nil
}
