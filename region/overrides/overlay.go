package overrides

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/regiond/regiond/internal/base/loglimit"
	"github.com/regiond/regiond/limiter/store"
	"github.com/regiond/regiond/quota"
	"github.com/regiond/regiond/region"
)

// Options are what New needs. All but Eval are required.
type Options struct {
	Region string // our own
	// Eval asks the region's Redis; nil keeps overrides in this process alone.
	Eval Eval
	// TimeUS is the clock of the region's store, by which overrides end, and Now that of this process, which measures.
	TimeUS func() int64
	Now    func() time.Time
	// Topology is in force now. It says what an edit may set.
	Topology func() *region.Topology
	Logger   *slog.Logger
}

// Overlay has the overrides of all tenants, as this process knows them. Safe for concurrent use.
type Overlay struct {
	o      Options
	keeper keeper
	shared shared // keeper, where there are other processes; nil
	table  table

	loaded atomic.Bool
	asked  sync.Map     // tenants that were found to have none, until all are loaded
	failed atomic.Int64 // when reading one failed last, ns by Now; 0: never
	faults *loglimit.Rate
	away   loglimit.Fault

	peers *Peers // nil without other regions
	inbox chan received
	waits waits
}

const (
	// followEvery is how often a process looks for edits of its siblings.
	followEvery = 250 * time.Millisecond
	// scanEvery is how often one slice is compared with what Redis has: all of them in four minutes.
	scanEvery = time.Second
	// firstRead bounds the look-up for a decision whose tenant is not known yet, and firstRest is for how long none is tried after
	// one has failed.
	firstRead, firstRest = 20 * time.Millisecond, 250 * time.Millisecond
	// readTimeout bounds one question of Run to Redis.
	readTimeout = time.Second
)

// New returns an Overlay that knows no override yet; Run reads them.
func New(o Options) *Overlay {
	v := &Overlay{o: o, faults: loglimit.NewRate(1, time.Minute)}
	v.keeper = &memory{texts: map[string]string{}, lines: map[string][]string{}}
	v.inbox, v.waits.all = make(chan received, maxInbox), map[*editWaits]struct{}{}
	if o.Eval != nil {
		v.shared = redis(o.Eval)
		v.keeper = v.shared
	}
	v.loaded.Store(o.Eval == nil)
	return v
}

// Of implements limiter.Overrides.
func (v *Overlay) Of(ctx context.Context, tenant string) (*quota.Override, error) {
	o := v.table.get(tenant)
	if o == nil && !v.loaded.Load() {
		var err error
		if o, err = v.first(ctx, tenant); err != nil {
			return nil, err
		}
	}
	if !o.InForce(v.o.TimeUS()) {
		return nil, nil //nolint:nilnil // there is none
	}
	return o, nil
}

// first reads the override of a tenant that was not loaded yet.
func (v *Overlay) first(ctx context.Context, tenant string) (*quota.Override, error) {
	if _, known := v.asked.Load(tenant); known || quota.ValidID(tenant) != nil {
		return nil, nil //nolint:nilnil // there is none
	}
	unread := &store.Error{Reason: quota.ReasonRedisDown, Err: errors.New("the override of the tenant is not known yet")}
	if at := v.failed.Load(); at != 0 && v.o.Now().UnixNano()-at < firstRest.Nanoseconds() {
		return nil, unread
	}
	ctx, cancel := context.WithTimeout(ctx, firstRead)
	defer cancel()
	text, err := v.keeper.read(ctx, tenant)
	if err != nil {
		v.failed.Store(v.o.Now().UnixNano())
		if unread.Err = fmt.Errorf("read the override of a tenant: %w", err); ctx.Err() != nil {
			unread.Reason = quota.ReasonRedisTimeout
		}
		return nil, unread
	}
	if o := v.parse(tenant, text); o != nil {
		v.table.fold(o)
		return v.table.get(tenant), nil
	}
	v.asked.Store(tenant, nil)
	return nil, nil //nolint:nilnil // there is none
}

// parse reads a text of the keeper, nil for none and for one that cannot be read.
func (v *Overlay) parse(tenant, text string) *quota.Override {
	if text == "" {
		return nil
	}
	o, err := quota.ParseOverride(tenant, text)
	if err != nil {
		v.faults.Warn(v.o.Logger, v.o.Now(), "unreadable", "an override in redis cannot be read and is ignored; set it again",
			"key", sliceKey(sliceOf(tenant)), "tenant", quota.Clip(tenant), "error", err)
	}
	return o
}

// Read implements limiter.Overrides.
func (v *Overlay) Read(ctx context.Context, tenant string) (*quota.Override, error) {
	if quota.ValidID(tenant) != nil {
		return nil, nil //nolint:nilnil // there is none
	}
	o, _, err := v.current(ctx, tenant)
	if err != nil || !o.InForce(v.o.TimeUS()) {
		return nil, err
	}
	return o, nil
}

// Known implements limiter.Overrides.
func (v *Overlay) Known(tenant string) bool { return v.table.get(tenant) != nil }

// current is the newest override that is known of a tenant, nil for none, and the text that is kept.
func (v *Overlay) current(ctx context.Context, tenant string) (o *quota.Override, kept string, err error) {
	if kept, err = v.keeper.read(ctx, tenant); err != nil {
		return nil, "", fmt.Errorf("read the override: %w", err)
	}
	o = v.parse(tenant, kept)
	if known := v.table.get(tenant); known != nil && (o == nil || known.Version.Compare(o.Version) > 0) {
		o = known // redis has lost it
	}
	return o, kept, nil
}

// holds reports whether a text of the keeper is this version of its tenant's override.
func holds(text string, o *quota.Override) bool {
	return strings.HasPrefix(text, "1 "+o.Version.String()+" ")
}

// ErrLoading is that not all overrides have been read since this process started.
var ErrLoading = errors.New("the overrides are still being read from redis")

// List returns up to n overrides that are in force, without By and Reason, after that of a tenant, "" for the first. next is
// where to go on, "" at the end. Their order is the same in all processes, and not that of the names.
func (v *Overlay) List(after string, n int) (all []*quota.Override, next string, err error) {
	if !v.loaded.Load() {
		return nil, "", ErrLoading
	}
	slice := 0
	if after != "" {
		slice = sliceOf(after)
	}
	for ; slice < sliceCount; slice++ {
		for _, o := range v.table.of(slice) {
			switch {
			case o.Tenant <= after || !o.InForce(v.o.TimeUS()):
			case len(all) == n:
				return all, all[n-1].Tenant, nil
			default:
				all = append(all, o)
			}
		}
		after = ""
	}
	return all, "", nil
}

// History returns the last edits of a tenant's override in this region, deletions too, the newest first: at most
// quota.MaxEdits, and one more that the oldest of them has replaced, if there was one.
func (v *Overlay) History(ctx context.Context, tenant string) ([]*quota.Override, error) {
	texts, err := v.keeper.history(ctx, tenant)
	if err != nil {
		return nil, fmt.Errorf("read the history: %w", err)
	}
	var all []*quota.Override
	for _, text := range texts {
		if o := v.parse(tenant, text); o != nil {
			all = append(all, o)
		}
	}
	return all, nil
}

// Size is how many overrides this process knows, those that were deleted or have expired lately among them.
func (v *Overlay) Size() int64 { return v.table.size.Load() }

// Run reads all overrides and follows the edits of other processes until ctx ends. Then it returns nil.
func (v *Overlay) Run(ctx context.Context) error {
	f := follower{Overlay: v, at: -1}
	for {
		wait := time.NewTimer(f.step(ctx))
		for waits := true; waits; {
			select {
			case <-ctx.Done():
				wait.Stop()
				return nil
			case r := <-f.inbox:
				f.handle(ctx, r)
			case <-wait.C:
				waits = false
			}
		}
		f.advertise()
	}
}

// follower is where Run stands.
type follower struct {
	*Overlay
	at      int64 // the newest edit of the log that was read; -1: none yet
	slice   int   // the next to be read
	left    int   // of those that have to be read soon
	scanned time.Time

	advertised, askedAt time.Time // when r was published, and d, last
}

// step does what is due, and returns after which time to call it again.
func (f *follower) step(ctx context.Context) (wait time.Duration) {
	err := f.follow(ctx)
	for began := f.o.Now(); err == nil && f.left > 0 && f.o.Now().Sub(began) < followEvery; f.left-- {
		if err = f.scan(ctx); err != nil {
			break
		}
	}
	now := f.o.Now()
	if err == nil && f.left == 0 && !f.loaded.Swap(true) {
		f.asked.Clear()
		f.o.Logger.Info("overrides are loaded", "overrides", f.Size())
	}
	if err == nil && f.left == 0 && now.Sub(f.scanned) >= scanEvery {
		f.scanned = now
		err = f.scan(ctx)
	}
	switch {
	case ctx.Err() != nil:
	case err == nil && f.away.Ends():
		f.o.Logger.Info("overrides are read from redis again")
	case err != nil && f.away.Begins():
		f.o.Logger.Warn("overrides cannot be read from redis: those that are known stay in force", "error", err)
	}
	if err == nil && f.left > 0 {
		return 0
	}
	return followEvery
}

// follow reads what other processes have edited. Where the log does not say all of it, everything is to be read.
func (f *follower) follow(ctx context.Context) error {
	if f.shared == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	tenants, newest, whole, err := f.shared.edits(ctx, max(0, f.at))
	if err != nil {
		return fmt.Errorf("read the log of edits: %w", err)
	}
	if f.at < 0 || !whole {
		f.at, f.left = newest, sliceCount
		return nil
	}
	for _, tenant := range tenants {
		text, err := f.keeper.read(ctx, tenant)
		if err != nil {
			return err
		}
		if o := f.parse(tenant, text); o != nil {
			f.table.fold(o)
		}
	}
	f.at = newest
	return nil
}

// scan compares one slice with what is kept of it. Each side gets what the other has newer: a Redis that lost data has it
// again, but for reasons and names. What ended long ago is forgotten on both.
func (f *follower) scan(ctx context.Context) error {
	slice, nowUS, texts := f.slice, f.o.TimeUS(), map[string]string{}
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	if f.shared != nil {
		if err := f.shared.scan(ctx, slice, func(tenant, text string) { texts[tenant] = text }); err != nil {
			return fmt.Errorf("read overrides: %w", err)
		}
	}
	f.slice = (f.slice + 1) % sliceCount
	for tenant, text := range texts {
		if o := f.parse(tenant, text); o != nil && !o.Forgotten(nowUS) {
			f.table.fold(o)
		}
	}
	if !f.loaded.Load() { // there is nothing here that redis has not
		return nil
	}
	for _, o := range f.table.of(slice) {
		if err := f.settle(ctx, o, texts[o.Tenant], nowUS); err != nil {
			return err
		}
	}
	return nil
}

// settle has the keeper keep an override as this process knows it, or both forget it. text is what the keeper has.
func (f *follower) settle(ctx context.Context, o *quota.Override, text string, nowUS int64) (err error) {
	switch {
	case o.Forgotten(nowUS):
		if f.shared == nil {
			text, err = f.keeper.read(ctx, o.Tenant)
		}
		if err == nil {
			_, err = f.keeper.swap(ctx, o.Tenant, text, "", false)
		}
		if err == nil {
			f.table.forget(o)
		}
	case f.shared != nil && !holds(text, o):
		_, err = f.keeper.swap(ctx, o.Tenant, text, string(o.AppendText(nil)), false)
	}
	if err != nil {
		return fmt.Errorf("keep an override: %w", err)
	}
	return nil
}
