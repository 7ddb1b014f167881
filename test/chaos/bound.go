//go:build linux

package chaos

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/regiond/regiond/quota"
	"github.com/regiond/regiond/quota/loan"
	"github.com/regiond/regiond/region"
	"github.com/regiond/regiond/test/chaos/judge"
	"github.com/regiond/regiond/test/chaos/traffic"
)

// boundClasses are the classes whose limits have a bound, with B and window of each.
var boundClasses = map[string]struct {
	most   int64
	window time.Duration
}{
	traffic.Strict: {BoundUnits, BoundWindow}, traffic.Tenth: {BoundUnits * 11 / 10, BoundWindow}, traffic.Month: {MonthUnits, MonthWindow},
}

// hours are the periods of class hour.
var hours = &quota.Calendar{Unit: quota.CalendarHour, Zone: time.UTC, Anchor: 1}

// boundKept is how long loans and what was used before are kept in mind: (D + W)·(1 + ρ)/(1 − ρ).
var boundKept = time.Duration(loan.TermsOf(BoundWindow.Microseconds()).Keep()) * time.Microsecond

const (
	// lentWithin is how soon a region whose share is burnt admits what others lend it, and closedWithin for how long a wrong
	// clock closes a bound: until it is asked, and another epoch begins.
	lentWithin   = 2 * time.Second
	closedWithin = 1500 * time.Millisecond
	// storesEvery is how often stores are read: what they hold is lost with them.
	storesEvery = 100 * time.Millisecond
	// loansEvery is how often regions are asked what they have borrowed.
	loansEvery = 500 * time.Millisecond
)

// watch reads, all the while, what stores hold of bounded classes, and what regions have borrowed.
// Admissions whose answers are lost are in stores alone, and those that a store has lost are in
// answers, or were read before.
type watch struct {
	cancel context.CancelFunc
	wg     sync.WaitGroup

	mu       sync.Mutex
	stored   map[string]judge.Admissions // by class
	periods  judge.Periods               // of class hour
	borrowed map[string]int64            // by region: the most at once
	failed   error                       // of what was read and not understood
}

// watchBounds begins; end it before the world is taken down.
func (w *World) watchBounds() *watch {
	ctx, cancel := context.WithCancel(context.Background())
	o := &watch{cancel: cancel, stored: map[string]judge.Admissions{}, periods: judge.Periods{}, borrowed: map[string]int64{}}
	for class := range boundClasses {
		o.stored[class] = judge.Admissions{}
	}
	for _, r := range w.Regions {
		stores := []string{redisAddr}
		if w.options.Sentinel == r.Name {
			stores = append(stores, replicaAddr)
		}
		for _, addr := range stores {
			o.wg.Go(func() { o.readStore(ctx, r, addr) })
		}
		o.wg.Go(func() {
			every(ctx, loansEvery, func() { o.readLoans(r) })
		})
	}
	return o
}

func (o *watch) end() {
	o.cancel()
	o.wg.Wait()
}

// every does something again and again until ctx ends, and once more then.
func every(ctx context.Context, d time.Duration, do func()) {
	for ctx.Err() == nil {
		do()
		pause(ctx, d)
	}
	do()
}

// readStore reads the logs of bounded classes in one server. One that is away holds nothing that
// it can be asked for.
func (o *watch) readStore(ctx context.Context, r *Region, addr string) {
	c := redis.NewClient(&redis.Options{
		Addr: addr, Dialer: r.ns.Dial, MaxRetries: -1, DialerRetries: 1, Protocol: 2, PoolSize: 1,
		ReadTimeout: time.Second, WriteTimeout: time.Second,
	})
	defer c.Close()
	every(ctx, storesEvery, func() {
		for class := range boundClasses {
			key := fmt.Sprintf("rl:{%s-00}:l:%s:::", class, class)
			log, err := c.LRange(context.Background(), key, 0, -1).Result()
			if err != nil {
				return
			}
			all := judge.Admissions{}
			for _, element := range log {
				us, units, err := logged(element)
				o.mu.Lock()
				if err != nil && o.failed == nil {
					o.failed = fmt.Errorf("%s: %s: %w", r.Name, key, err)
				}
				o.mu.Unlock()
				all[judge.Admitted{Region: r.Name, US: us}] += units
			}
			o.mu.Lock()
			o.stored[class].Stored(all)
			o.mu.Unlock()
		}
		if err := o.readPeriods(c, r.Name); err != nil {
			o.mu.Lock()
			o.failed = fmt.Errorf("%s: %w", r.Name, err)
			o.mu.Unlock()
		}
	})
}

// readPeriods reads what a store holds of class hour: of each tenant two periods, 'number:ends:units', 0:0:0 for none.
func (o *watch) readPeriods(c *redis.Client, region string) error {
	tenants, keys := make([]string, traffic.HourTenants), make([]string, traffic.HourTenants)
	for i := range tenants {
		tenants[i] = traffic.HourTenant(i)
		keys[i] = fmt.Sprintf("rl:{%s}:p.limit.%s:%s:::", tenants[i], hours.ID(), traffic.Hour)
	}
	values, err := c.MGet(context.Background(), keys...).Result()
	if err != nil {
		return nil // it is away
	}
	all := judge.Periods{}
	for i, value := range values {
		text, ok := value.(string)
		if !ok { // nothing was asked for yet
			continue
		}
		var n [6]int64
		if _, err := fmt.Sscanf(text, "%d:%d:%d:%d:%d:%d", &n[0], &n[1], &n[2], &n[3], &n[4], &n[5]); err != nil {
			return fmt.Errorf("%s: %q: %w", keys[i], text, err)
		}
		all[judge.Counted{Tenant: tenants[i], Region: region, Period: n[0]}] = n[2]
		all[judge.Counted{Tenant: tenants[i], Region: region, Period: n[3]}] = n[5]
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.periods.Stored(all)
	return nil
}

// logged is an element of a log: 'stamp', or 'stamp:units before:cost', and maybe '+offset'. The log's header, which
// begins with '.', stands behind the stamp of the oldest.
func logged(element string) (us, units int64, err error) {
	element, _, _ = strings.Cut(element, "+")
	fields := strings.Split(element, ":")
	stamp, _, _ := strings.Cut(fields[0], ".")
	if us, err = strconv.ParseInt(stamp, 10, 64); err != nil || len(fields) == 1 {
		return us, 1, err
	}
	units, err = strconv.ParseInt(fields[len(fields)-1], 10, 64)
	return us, units, err
}

// readLoans asks a region for what it has borrowed.
func (o *watch) readLoans(r *Region) {
	borrowed, err := r.metric(`regiond_loans_borrowed_units\{.*\}`)
	if err != nil {
		return // it is down, or frozen
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.borrowed[r.Name] = max(o.borrowed[r.Name], int64(borrowed))
}

// bounds judges the limits that have a bound. No fault is an excuse.
func (x *trial) bounds(records []traffic.Record) {
	if x.watch == nil {
		return
	}
	if x.watch.failed != nil {
		x.object("bound: " + x.watch.failed.Error())
	}
	for class, b := range boundClasses {
		all := judge.Admissions{}
		x.object(all.Answers(records, x.w.History.WallUS, x.w.trueUS, class)...)
		if !x.World.Clock { // a log goes by the partition's clock, which is another one then
			all.Stored(x.watch.stored[class])
		}
		phases := []judge.Phase{{Span: judge.Span{To: x.ended}, Units: b.most}}
		if class == traffic.Strict && x.Less != 0 {
			phases = x.lessened(records, b.most)
		}
		fullest, objects := judge.Bound(all, x.w.History.WallUS, class, b.window, phases)
		x.object(objects...)
		x.figures.Fullest[class] = fullest
	}
	x.hours(records)
	if x.Lent != "" {
		since := x.injected
		if slices.Contains(x.Modes, "local") { // it was away until then
			since = x.healed
		}
		took, objects := judge.Lent(records, traffic.Month, x.Lent, since, lentWithin)
		x.object(objects...)
		x.figures.LentMS = ms(took)
	}
	for _, region := range x.Wrong {
		longest, objects := judge.Open(records, traffic.Strict, region, closedWithin)
		x.object(objects...)
		x.figures.ClosedMS = max(x.figures.ClosedMS, ms(longest))
	}
	for _, units := range x.watch.borrowed {
		x.figures.Borrowed += units
	}
	if x.figures.Borrowed == 0 {
		x.object("bound: no region has borrowed a unit")
	}
}

// hours judges the limits that have a bound by the calendar, each period by the clocks of the stores. That a region gets what others
// leave is judged of tenants that were asked for before the fault, in regions that then lose nothing: loans of the rest are void.
func (x *trial) hours(records []traffic.Record) {
	all := x.watch.periods
	if len(all) == 0 {
		x.object("bound: no store was seen to hold anything of hour")
	}
	x.object(all.Answers(records, hours, traffic.Hour)...)
	burnt := slices.Concat(x.Forgets, x.Loses, x.Burns)
	stands := int64(HourUnits * (len(x.w.Regions) - len(burnt)) / len(x.w.Regions))
	for n := range traffic.HourTenants {
		i, tenant := n%(len(x.w.Regions)+1), traffic.HourTenant(n)
		if i == len(x.w.Regions) || slices.Contains(burnt, x.w.Regions[i].Name) || !slices.ContainsFunc(records, func(r traffic.Record) bool {
			return r.Tenant == tenant && r.Return < x.injected
		}) {
			continue
		}
		judged, objects := all.Left(records, hours, stands, x.w.Regions[i].Name, tenant)
		x.object(objects...)
		if judged {
			x.figures.Left++
		}
	}
	fullest, objects := all.Within(HourUnits)
	x.object(objects...)
	x.figures.Fullest[traffic.Hour] = fullest
}

// trueUS is when the store's TIME was that of an answer.
func (w *World) trueUS(r *traffic.Record) int64 {
	us := r.Answer.Explain.StoreTimeUS
	if clock := w.region(r.Region).clock; clock != nil {
		return clock.True(us, w.History.WallUS(r.Call), w.History.WallUS(r.Return))
	}
	return us
}

// lessened are the phases of a limit that is reloaded with fewer units, and with all of them when
// the fault is healed: the larger bound holds until all regions have had the smaller one for as long
// as loans are kept.
func (x *trial) lessened(records []traffic.Record, most int64) []judge.Phase {
	all, objects := appliedBy(records, x.Less)
	x.object(objects...)
	from := all + boundKept
	return []judge.Phase{
		{Span: judge.Span{To: from}, Units: most},
		{Span: judge.Span{From: from, To: x.healed}, Units: x.Less},
		{Span: judge.Span{From: x.healed, To: x.ended}, Units: most},
	}
}

// appliedBy is when the last region has first applied a limit of so many units to class strict.
func appliedBy(records []traffic.Record, units int64) (all time.Duration, objects []string) {
	since := map[string]time.Duration{}
	for i := range records {
		r := &records[i]
		if at, ok := since[r.Region]; r.Class == traffic.Strict && r.Answer.Limit == units && (!ok || r.Return < at) {
			since[r.Region] = r.Return
		}
	}
	for _, name := range Names() {
		at, ok := since[name]
		if !ok {
			objects = append(objects, fmt.Sprintf("bound: %s never applies a limit of %d", name, units))
		}
		all = max(all, at)
	}
	return all, objects
}

// share is a region's part of a class's bound, as it reports it.
func (r *Region) share(class string) (int64, error) {
	l, err := r.explained(class + "-00")
	return l.Bound.Share, err
}

// inForce waits until each region of the layout in force has its part of strict's bound under it.
func (w *World) inForce() error {
	weights := make([]quota.Weight, len(w.Regions))
	for i, r := range w.Regions {
		weights[i] = quota.Weight{Region: r.Name, Weight: w.layout.Weights[i]}
	}
	part := region.Shares(weights, BoundUnits)
	_, err := w.Await(2*boundKept, fmt.Sprintf("all regions have their shares under %v", w.layout), func() error {
		for i, r := range w.Regions {
			if w.layout.Weights[i] == 0 {
				continue
			}
			share, err := r.share(traffic.Strict)
			if err == nil && share != part[i] {
				err = fmt.Errorf("%s has a share of %d, not %d", r.Name, share, part[i])
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
	if err == nil {
		w.History.Note(fmt.Sprintf("all regions have their shares under %v", w.layout))
	}
	return err
}

// revise replaces the files of all regions by those of a layout, one after the other.
func (w *World) revise(l Layout, apart time.Duration) error {
	w.layout = l
	for i, r := range w.Regions {
		if l.Weights[i] == 0 {
			continue
		}
		if err := w.writeFile(r); err != nil {
			return err
		}
		w.History.Note(fmt.Sprintf("the file of %s has %v", r.Name, l))
		time.Sleep(apart)
	}
	return nil
}

// Reweigh gives all regions' files other weights, one after the other. Healed, they are in force.
func (w *World) Reweigh(apart time.Duration, weights [3]int64) Fault {
	return Fault{
		Name:   fmt.Sprintf("weights %v under a new revision, region by region, %v apart", weights, apart),
		Inject: func() error { return w.revise(Layout{w.layout.Revision + 1, weights}, apart) },
		Heal:   w.inForce,
	}
}

// Remove stops a region's regiond and takes the region out of the others' files. Once it is out of
// force, and all is healed, it is back with the next revision, and this is in force.
func (w *World) Remove(name string, apart time.Duration) Fault {
	r := w.region(name)
	stop, all := w.Restart(name), w.layout.Weights
	return Fault{
		Name: fmt.Sprintf("region %s stopped and taken out of the files, %v apart, and put back", name, apart),
		Inject: func() error {
			if err := stop.Inject(); err != nil {
				return err
			}
			without := all
			without[r.number] = 0
			return w.revise(Layout{w.layout.Revision + 1, without}, apart)
		},
		Heal: func() error {
			if err := w.inForce(); err != nil {
				return err
			}
			time.Sleep(2 * traffic.BoundTurn) // so that the rest play with it
			if err := w.revise(Layout{w.layout.Revision + 1, all}, apart); err != nil {
				return err
			}
			return stop.Heal()
		},
	}
}
