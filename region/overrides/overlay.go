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

	"go.opentelemetry.io/otel/metric"

	"github.com/regiond/regiond/internal/base/instruments"
	"github.com/regiond/regiond/internal/base/loglimit"
	"github.com/regiond/regiond/limiter/store"
	"github.com/regiond/regiond/quota"
	"github.com/regiond/regiond/region"
)

// Options are what New needs. All but Eval and Meter are required.
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
	Meter    metric.Meter // nil: nobody reads the instruments
}

// Overlay has the overrides of all tenants, as this process knows them. Safe for concurrent use.
type Overlay struct {
	o      Options
	keeper keeper
	table  table

	loaded atomic.Bool
	asked  sync.Map     // tenants that were found to have none, until all are loaded: at most maxAsked
	asks   atomic.Int64 // tenants put into asked
	failed atomic.Int64 // when reading one failed last, ns by Now; 0: never
	faults *loglimit.Rate
	double *loglimit.Rate // edits on both sides of a cut: of each there is a line, of a flood there are some
	away   loglimit.Fault
	noRoom *instruments.Counter

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
	// maxAsked bounds the tenants that are remembered to have none before all are loaded.
	maxAsked = 100_000
	// scanTime is for how long Run reads at once, about, so that what is received does not wait, and scansAtOnce are the slices that
	// it reads at the same time.
	scanTime    = 20 * time.Millisecond
	scansAtOnce = 2
	// backAfter is for how long reading has to succeed until it is logged that it does: a slow Redis fails now and then.
	backAfter = 10 * time.Second
	// readTimeout bounds one question to Redis. A slice of many takes several, and a slow Redis is read all the same.
	readTimeout = time.Second
)

// New returns an Overlay that knows no override yet; Run reads them.
func New(o Options) (*Overlay, error) {
	v := &Overlay{o: o, faults: loglimit.NewRate(1, time.Minute), double: loglimit.NewRate(1000, time.Second)}
	v.keeper = newMemory()
	v.inbox, v.waits.all = make(chan received, maxInbox), map[*editWaits]struct{}{}
	if o.Eval != nil {
		v.keeper = redis(func(ctx context.Context, script, key string, args ...any) (any, error) {
			ctx, cancel := context.WithTimeout(ctx, readTimeout)
			defer cancel()
			return o.Eval(ctx, script, key, args...)
		})
	}
	v.loaded.Store(o.Eval == nil)
	i := instruments.On(o.Meter)
	gauge := func(name, unit, help string, n *atomic.Int64) {
		i.Gauge(name, unit, help, func(observe instruments.Observe) { observe(float64(n.Load())) })
	}
	gauge("regiond.overrides", "{override}", "Overrides that are known, those that ended in the last 30 days among them.", &v.table.size)
	gauge("regiond.overrides.size", "By", "Memory that they take, about.", &v.table.bytes)
	v.noRoom = i.Counter("regiond.overrides.refused", "{override}", "Overrides of other regions for which there was no room.")
	return v, i.Err()
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
	texts, err := v.keeper.read(ctx, tenant)
	if err != nil {
		v.failed.Store(v.o.Now().UnixNano())
		if unread.Err = fmt.Errorf("read the override of a tenant: %w", err); ctx.Err() != nil {
			unread.Reason = quota.ReasonRedisTimeout
		}
		return nil, unread
	}
	if o := v.parse(tenant, texts[0]); o != nil {
		v.table.fold(o)
		return v.table.get(tenant), nil
	}
	if v.asks.Add(1)%maxAsked == 0 { // it may take for ever to load all
		v.asked.Clear()
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

// current is the newest override that is known of a tenant, nil for none, and the text that is kept. It is in force in this process
// then, whatever became of the edit that set it.
func (v *Overlay) current(ctx context.Context, tenant string) (o *quota.Override, kept string, err error) {
	texts, err := v.keeper.read(ctx, tenant)
	if err != nil {
		return nil, "", fmt.Errorf("read the override: %w", err)
	}
	if o = v.newest(tenant, texts[0]); o != nil && !o.Forgotten(v.o.TimeUS()) {
		v.table.fold(o)
	}
	return o, texts[0], nil
}

// newest is the newer of what this process knows of a tenant and what is kept, nil for none.
func (v *Overlay) newest(tenant, kept string) *quota.Override {
	o := v.parse(tenant, kept)
	if known := v.table.get(tenant); known != nil && (o == nil || known.Version.Compare(o.Version) > 0) {
		return known // redis has lost it
	}
	return o
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
		for n := len(f.inbox); n > 0; n-- { // also while there is more to read
			f.handle(ctx, <-f.inbox)
		}
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
	awayAt  time.Time // when reading failed last

	advertised, askedAt time.Time // when r was published, and d, last

	budget   int // bytes of answers that are left since budgetAt
	budgetAt time.Time
	answered place // where the last answer ended
	rests    map[answered]again
}

// step does what is due, and returns after which time to call it again.
func (f *follower) step(ctx context.Context) (wait time.Duration) {
	err := f.follow(ctx)
	for began := f.o.Now(); err == nil && f.left > 0 && f.o.Now().Sub(began) < scanTime; {
		n := min(f.left, scansAtOnce)
		if err = f.scan(ctx, n); err == nil {
			f.left -= n
		}
	}
	now := f.o.Now()
	if err == nil && f.left == 0 && !f.loaded.Swap(true) {
		f.asked.Clear()
		f.o.Logger.Info("overrides are loaded", "overrides", f.Size())
	}
	if err == nil && f.left == 0 && now.Sub(f.scanned) >= scanEvery {
		f.scanned = now
		err = f.scan(ctx, 1)
	}
	switch {
	case ctx.Err() != nil:
	case err != nil:
		f.awayAt = now
		if f.away.Begins() {
			f.o.Logger.Warn("overrides cannot be read from redis: those that are known stay in force", "error", err)
		}
	case now.Sub(f.awayAt) >= backAfter && f.away.Ends():
		f.o.Logger.Info("overrides are read from redis again")
	}
	if err == nil && f.left > 0 {
		return 0
	}
	return followEvery
}

// follow reads what other processes have edited. Where the log does not say all of it, everything is to be read.
func (f *follower) follow(ctx context.Context) error {
	tenants, newest, whole, err := f.keeper.edits(ctx, max(0, f.at))
	if err != nil {
		return fmt.Errorf("read the log of edits: %w", err)
	}
	if f.at < 0 || !whole {
		f.at, f.left = newest, sliceCount
		return nil
	}
	for _, tenant := range tenants {
		texts, err := f.keeper.read(ctx, tenant)
		if err != nil {
			return err
		}
		if o := f.parse(tenant, texts[0]); o != nil {
			f.table.fold(o)
		}
	}
	f.at = newest
	return nil
}

// scan compares the next slices with what is kept of them, n at the same time. Each side gets what the other has newer: a Redis that
// lost data has it again, but for reasons and names. What ended long ago is forgotten on both.
func (f *follower) scan(ctx context.Context, n int) error {
	var wg sync.WaitGroup
	var lost atomic.Bool
	errs := make([]error, n)
	for i := range n {
		slice := (f.slice + i) % sliceCount
		wg.Go(func() { errs[i] = f.compare(ctx, slice, &lost) })
	}
	wg.Wait()
	if lost.Load() && f.left == 0 { // all others are compared soon
		f.left = sliceCount
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	f.slice = (f.slice + n) % sliceCount
	return nil
}

// compare is scan of one slice. It sets lost where the keeper has not what it had.
func (v *Overlay) compare(ctx context.Context, slice int, lost *atomic.Bool) error {
	nowUS := v.o.TimeUS()
	texts, err := v.kept(ctx, slice)
	if err != nil {
		return err
	}
	for tenant, text := range texts {
		if o := v.parse(tenant, text); o != nil && !o.Forgotten(nowUS) {
			v.table.fold(o)
		}
	}
	if !v.loaded.Load() { // there is nothing here that redis has not
		return nil
	}
	return v.settle(ctx, v.table.of(slice), texts, nowUS, lost)
}

// kept reads what the keeper has of a slice.
func (v *Overlay) kept(ctx context.Context, slice int) (texts map[string]string, err error) {
	texts = map[string]string{}
	if err = v.keeper.scan(ctx, slice, func(tenant, text string) { texts[tenant] = text }); err != nil {
		return nil, fmt.Errorf("read overrides: %w", err)
	}
	return texts, nil
}

// settle has the keeper keep overrides of one slice as this process knows them, or both forget them. texts are what the keeper has.
func (v *Overlay) settle(ctx context.Context, all []*quota.Override, texts map[string]string, nowUS int64, lost *atomic.Bool) error {
	var changes []replacement
	var ended []*quota.Override
	for _, o := range all {
		switch text := texts[o.Tenant]; {
		case o.Forgotten(nowUS):
			changes, ended = append(changes, replacement{o.Tenant, text, ""}), append(ended, o)
		case !holds(text, o):
			changes = append(changes, replacement{o.Tenant, text, o.Text()})
			if text == "" {
				lost.Store(true)
			}
		}
	}
	if _, err := v.keeper.swap(ctx, false, changes...); err != nil {
		return fmt.Errorf("keep overrides: %w", err)
	}
	for _, o := range ended {
		v.table.forget(o)
	}
	return nil
}
