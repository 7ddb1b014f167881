package limiter

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/regiond/regiond/limiter/store"
	"github.com/regiond/regiond/quota"
)

// What tenants have used in this region, for who bills them: keys of the store, page by page, and a look at each. One page is read
// at a time, in small steps with pauses between them, so that neither Redis nor memory notices how many tenants there are.

const (
	// usageStep is how many keys are looked at in one call of the store: about a tenth of a millisecond of Redis's time.
	usageStep = 8
	// usagePause is what Redis has for others between two steps of SCAN.
	usagePause = 2 * time.Millisecond
	// usageTime is how long a page takes at most, about; it then has fewer rows.
	usageTime = time.Second
)

// Usage returns a page of what tenants have used. The error is *quota.Invalid for a cursor that is none. Pages are read one after the
// other, whoever asks.
func (l *Limiter) Usage(ctx context.Context, u quota.UsageQuery) (quota.UsagePage, error) {
	r := l.rules.Load()
	page := quota.UsagePage{Region: r.Region, Rows: []quota.UsageRow{}, Next: u.Cursor}
	lister, ok := l.store.(store.Lister)
	if !ok {
		return page, errors.New("list usage: the store does not list its keys")
	}
	select {
	case l.usage <- struct{}{}:
		defer func() { <-l.usage }()
	case <-ctx.Done():
		return page, context.Cause(ctx)
	}
	for began := l.now(); ; {
		keys, next, err := lister.Keys(ctx, page.Next)
		switch {
		case errors.Is(err, store.ErrCursor):
			return page, invalid(quota.FaultInput, "/cursor",
				"must be the next_cursor of an answer of this region, since when its Redis is the same; begin again without cursor")
		case err != nil:
			return page, err
		}
		if page.Rows, err = l.appendUsage(ctx, r, page.Rows, keys, u.Policy); err != nil {
			return page, err
		}
		page.Next = next
		if next == "" || len(page.Rows) >= u.Rows || l.now().Sub(began) >= usageTime {
			return page, nil
		}
		select {
		case <-ctx.Done():
			return page, context.Cause(ctx)
		case <-time.After(usagePause):
		}
	}
}

// showUsage says of global limits what each region has used.
func (q *query) showUsage(d *quota.Decision) {
	d.Usage = make([][]quota.RegionUsage, len(d.Limits))
	for place, g := range q.globals() {
		if g.Terms == nil || !q.concerns(d.Limits) {
			continue
		}
		at := q.limits.keys.Order[place]
		s, regions := &d.Limits[at], &d.Usage[at]
		*regions = append(*regions, quota.RegionUsage{Region: q.rules.Region, Used: max(0, s.Used()-s.Held), Held: s.Held})
		for _, p := range g.Terms.Peers {
			*regions = append(*regions, quota.RegionUsage{Region: p.Region, Used: p.Estimate, Held: p.Held})
		}
	}
}

// usageOf is one partition: its plan, and its limits as they are in force.
type usageOf struct {
	plan     *limitPlan // of looks
	limits   []*quota.Limit
	row      quota.UsageRow
	override *quota.Override
}

// appendUsage appends rows for those of the keys that are of limits in force and have something used or held.
func (l *Limiter) appendUsage(ctx context.Context, r *rules, rows []quota.UsageRow, keys []string, policy string) ([]quota.UsageRow, error) {
	var all []usageOf
	var calls []store.Call
	seen := map[string]bool{}
	for _, key := range keys {
		kind, limit, tenant, of, partition, ok := store.ParseUsageKey(key)
		if !ok || policy != "" && of != policy {
			continue
		}
		p, ok := quota.ParsePartition(partition)
		looks := r.looks()[lookKey{of, kind, limit, p.Spec}]
		if !ok || looks == nil {
			continue
		}
		u := usageOf{plan: looks.plan, limits: looks.limits, row: quota.UsageRow{Tenant: tenant, Policy: of}}
		for _, d := range p.By {
			if d.Value == "" {
				continue
			}
			if u.row.Dimensions == nil {
				u.row.Dimensions = map[string]string{}
			}
			u.row.Dimensions[d.Name] = d.Value
		}
		own := store.PartitionKey(key)
		if seen[own] { // its holds have a key too
			continue
		}
		seen[own] = true
		if l.overrides != nil && tenant != "" && r.plans[of] != nil {
			u.override, _ = l.overrides.Of(ctx, tenant)
		}
		c := store.Call{Plan: looks.plan.keys, Keys: []string{own}, Op: store.OpPeek, Cost: 1, Ceilings: looks.plan.keys.Capacities}
		if kind == 'c' {
			c.Op, c.Cost = store.OpReserve, 0
		}
		all, calls = append(all, u), append(calls, c)
	}
	for len(calls) > 0 {
		n := min(usageStep, len(calls))
		verdicts := make([]store.Verdict, n)
		l.store.Decide(ctx, calls[:n:n], verdicts)
		for i := range verdicts {
			switch v := &verdicts[i]; {
			case v.Err == nil:
				rows = all[i].append(rows, v, r.MaxOverride)
			case !errors.Is(v.Err, store.ErrPartition):
				return rows, v.Err
			}
		}
		all, calls = all[n:], calls[n:]
	}
	return rows, nil
}

// append appends a row for each limit.
func (u *usageOf) append(rows []quota.UsageRow, v *store.Verdict, times int64) []quota.UsageRow {
	for i, lv := range v.Limits {
		limit, row := u.limits[i], u.row
		row.Limit, row.Scope, row.Units = limit.Name, limit.Scope, limit.Units
		if row.WindowMS, row.Calendar = limit.Window.Milliseconds(), ""; limit.Calendar != nil {
			row.WindowMS, row.Calendar = 0, limit.Calendar.Unit.String()
		}
		if o := u.override; o != nil && (o.Policy == "" || o.Policy == row.Policy) {
			row.Override, row.Units = o.Version.String(), unitsUnder(limit, o, times)
		}
		row.Held = lv.Held
		if row.Used = max(0, u.plan.keys.Capacities[i]-lv.Remaining-lv.Held); row.Used == 0 && row.Held == 0 {
			continue
		}
		row.EndsAt = quota.TimeText(v.StoreUS + lv.ResetUS)
		rows = append(rows, row)
	}
	return rows
}

// looks are plans that only look at what a key has, of limits so large that nothing is denied and all of it shows: of a gcra limit
// its burst at most.
type looks struct {
	plan   *limitPlan
	limits []*quota.Limit // in force, in the order of the plan's
}

// lookKey is what all keys of the same limits have.
type lookKey struct {
	policy string
	kind   byte
	limit  string // "" for a log
	spec   string // of a quota.Partition
}

// makeLooks returns the plans of all policies and domains.
func (r *rules) makeLooks() map[lookKey]*looks {
	all := map[lookKey]*looks{}
	for _, p := range r.plans {
		addLooks(all, p.policy, store.NewKeyPlan)
	}
	for _, d := range r.domains {
		addLooks(all, d.policy, store.NewChargesPlan)
	}
	return all
}

func addLooks(looked map[lookKey]*looks, p *quota.Policy, plan func([]*quota.Limit) *store.KeyPlan) {
	all := make([]*quota.Limit, len(p.Limits))
	for i := range p.Limits {
		all[i] = &p.Limits[i]
	}
	for _, k := range plan(all).Keys {
		key := lookKey{policy: p.Name}
		key.kind, key.limit, _, _, key.spec, _ = store.ParseUsageKey(store.NewKeyPlan(k.Limits).AppendKeys(nil, "", p.Name, nil)[0])
		wide := make([]*quota.Limit, len(k.Limits))
		for i, limit := range k.Limits {
			own := *limit
			own.Scope, own.MaxOvershoot = quota.ScopeRegion, 0
			if own.Algorithm != quota.GCRA { // whose level drains by its units
				own.Units = quota.MaxUnits
			}
			wide[i] = &own
		}
		if looked[key] == nil {
			looked[key] = &looks{newLimitPlan(wide, store.NewKeyPlan), slices.Clone(k.Limits)}
		}
	}
}
