package loan

import (
	"cmp"
	"maps"
	"math"
	"slices"

	"github.com/regiond/regiond/quota"
)

// Planner is the policy for one partition and limit in one region. Nothing of it is needed for the bound, and all of
// it may be lost. It is not safe for concurrent use.
//
// What lies here for longer than the way takes goes to who has run dry; what is beyond comfort goes to who will; what
// is borrowed goes home when its lender is short of its own share, as it comes free.
type Planner struct {
	Terms
	Bound   int64 // B
	Regions int
	Trip    int64 // µs one way, plus the time between two ticks
	Tick    int64 // µs between two ticks

	rates
	wants    map[string]*received
	waits    map[string]int64 // since when a region wants a cost and used nothing
	grants   map[ID]*granted
	owed     map[string]owed
	returned []passed
	last     struct {
		want     int64 // time
		starving bool
		got      int64
		enough   int64 // time: nothing was lacking in the period, or some came
		planned  int64 // time
		denied   int64 // time of the last denial
		asked    int64 // and of the last request
		had      int64 // since when the ceiling is that of a cost; 0: it is not
		cost     int64 // the largest of one request within some windows, and since when it is
		costly   int64
		again    int64 // when returns were sent last
		repeats  int   // how often since one was new
	}
}

// granted is the newest grant of a loan, which may have been lost.
type granted struct {
	Grant
	to       string
	at, sent int64 // when it was granted and sent last
	times    int
}

// owed is what a lender is to get back as it comes free.
type owed struct {
	units, until int64
}

// passed is what was returned, which the receiver's want may not yet show.
type passed struct {
	to        string
	units, at int64
}

type received struct {
	Want
	at     int64
	since  int64 // when the first want of its epoch came: what was granted before is void there; 0: not known
	evened bool
}

// Settings that were found by simulation; TestPromises of test/sim/accuracy holds them to what is admitted.
const (
	claimPart  = 40.0    // need looks back over W/40
	homeSigma  = 1.0     // deviations that a region within its share leaves free
	lackSigma  = 3.0     // deviations that are wanted beyond the mean
	ahead      = 10.0    // loans of need that are wanted, so that little is idle where a borrower is lost
	crowd      = 2.0     // how many answer one want, on average
	homeLoose  = 0.7     // deviations that are not worth a return
	keepTrips  = 2.0     // trips of demand that are kept
	urgeTrips  = 0.5     // trips of denied demand that are urgent
	maxLoans   = 3       // loans to one region at once
	targetOver = 4       // a target is at most so many times B
	wantLeast  = 200_000 // µs between wants, where it is urgent and the window is long
	wantMost   = 300_000 // µs, where it is not
	resends    = 3       // of a grant that may be lost
)

func (p *Planner) gaps() (least, most int64) {
	return max(p.Tick, min(p.Window/50, wantLeast)), min(max(p.Window/20, 50_000), wantMost)
}

// begin makes what an empty Planner lacks.
func (p *Planner) begin() {
	if p.wants == nil {
		p.wants, p.grants, p.owed, p.waits = map[string]*received{}, map[ID]*granted{}, map[string]owed{}, map[string]int64{}
	}
}

// Receive takes a want of another region. Messages may come in any order.
func (p *Planner) Receive(now int64, w Want) {
	p.begin()
	old, r := p.wants[w.From], &received{Want: w, at: now}
	switch {
	case old == nil && !w.Burnt:
	case old == nil || old.Epoch != w.Epoch:
		r.since = now
	case old.Time >= w.Time && now-old.at < 5_000_000:
		return
	default:
		r.since = old.since
	}
	p.wants[w.From] = r
	p.queue(&w, now)
}

// floor is how much of its ceiling a region gives to nobody who is short: its share. While that is burnt, it is the same part
// of each other's share, which they leave it.
func (p *Planner) floor(b *Book, now int64) int64 {
	if b.burnt(now) {
		return min(b.Borrowed(now, b.Period.Number), p.part(b.Share, max(0, p.Bound-b.Share)))
	}
	return b.Share
}

// part is what a region with one share leaves to one whose share is burnt. Of 600 units, of which three regions have 200 each,
// each of two leaves 66.
func (p *Planner) part(a, b int64) int64 {
	n, _ := quota.MulDiv(a, b, p.Bound)
	return n
}

// Granted takes note of what an OpLend brought about, which is sent to the borrower.
func (p *Planner) Granted(now int64, to string, g Grant) {
	p.begin()
	p.grants[g.ID] = &granted{Grant: g, to: to, at: now, sent: now}
}

func round(f float64) int64 { return int64(math.Floor(f + 0.5)) }

// fresh returns the wants that still hold in a period, by region.
func (p *Planner) fresh(now, period int64) (l []*received) {
	_, most := p.gaps()
	for from, w := range p.wants {
		keeps := 3*most + p.Trip
		if p.turnsOf(&w.Want) {
			keeps = p.Length / 2
		}
		if now-w.at > keeps {
			delete(p.wants, from)
			continue
		}
		if w.Period == period {
			l = append(l, w)
		}
	}
	slices.SortFunc(l, func(a, b *received) int { return cmp.Compare(a.From, b.From) })
	return l
}

// plan is what one call of Plan works with.
type plan struct {
	*Planner
	demand
	b                  *Book
	now, used, ceiling int64
	wants              []*received
	rnd                func() float64

	ops   []Op
	cost  int64  // the largest of one request, at least 1
	slack int64  // of the ceiling, unused
	free  int64  // of the own share
	kept  int64  // to be left unused for regions whose share is burnt, or whose turn it is
	held  []Loan // those that are not over, as they are after ops
}

// inPeriod is the book without loans of other periods than counts: plans are about that.
func (b *Book) inPeriod() *Book {
	if b.Period.Number == 0 {
		return b
	}
	of := *b
	other := func(l Loan) bool { return l.Period != b.Period.Number }
	of.Lent, of.Held = slices.DeleteFunc(slices.Clone(b.Lent), other), slices.DeleteFunc(slices.Clone(b.Held), other)
	return &of
}

// planWindow is what a limit with a calendar is planned by, µs: within that a region learns what it is asked for, and keeps as much.
const planWindow = 600_000_000

// PlanningTerms are the terms that a Planner goes by: the same, but where there is a calendar of a shorter window.
func PlanningTerms(l *quota.Limit) Terms {
	t := TermsOfLimit(l)
	if l.Calendar != nil {
		t.Window = planWindow
	}
	return t
}

// Plan is what to do now: operations for the region's store, and a want for all others, if it is time for one. b is
// what the store holds, and is not changed. asked counts what was asked for since the last plan; cost is the largest
// of one request, and denied says whether any was denied. rnd draws from [0, 1).
//
// Two regions share 200 units per 10 s, 100 each, and a is idle (TestPlan):
//
//	b used its 100, was asked for 120, denied   want: lack 187, urgent 4
//	a receives it, nothing used                 lends b all 100
//	a second later a is asked for 100, denied   want: urgent 251, its ceiling 0 of a share of 100
//	b receives it, 1 of the 100 not in use      returns 1, and leaves the next 99 that come free unused: a recall
func (p *Planner) Plan(b *Book, now, used, asked, cost int64, denied bool, rnd func() float64) ([]Op, *Want) {
	p.begin()
	b = b.inPeriod()
	p.fold(now, asked, p.Window, p.Trip)
	if cost = min(cost, p.Bound); cost >= p.last.cost || now-p.last.costly > p.stay() {
		p.last.cost, p.last.costly = max(1, cost), now
	}
	if asked > 0 {
		p.last.asked = now
	}
	if denied {
		p.last.denied = now
	}
	ceiling, wants := b.Ceiling(now), p.fresh(now, b.Period.Number)
	if ceiling < p.last.cost {
		p.last.had = 0
	} else if p.last.had == 0 {
		p.last.had = now
	}
	denied = p.last.denied > 0 && now-p.last.denied <= 2*p.Tick || p.turns(b.Share) && p.last.had == 0 && p.lately(now)
	x := plan{
		Planner: p, b: b, now: now, used: used, ceiling: ceiling, wants: wants, rnd: rnd,
		slack: b.Slack(now, used), free: b.Free(now, used), demand: p.demand(b, now, used, denied),
	}
	want := Want{
		From: b.Region, Epoch: b.Bound.Epoch, Time: now, Rate: p.fast, Share: b.Share, Ceil: ceiling, Slack: max(0, x.slack),
		Cost: p.last.cost, Need: x.need, Lack: max(0, x.target-ceiling), Burnt: b.burnt(now), Held: b.Held,
		Period: b.Period.Number,
	}
	// What was used of a period before the loss counts on. Where that is more than the others leave, what they lend is of no use.
	if b.Period.Number != 0 && want.Burnt && x.slack < 0 && used >= p.part(b.Share, max(0, p.Bound-b.Share)) {
		want.Lack = 0
	}
	x.held = slices.DeleteFunc(slices.Clone(b.Held), func(l Loan) bool { return l.Until <= now })
	for i := range b.Held { // what is over is extended when its lender is back, which is soon or not at all
		if l := &b.Held[i]; l.Until <= now && now < l.Until+10*p.Length {
			want.Lack = max(0, want.Lack-l.Left())
		}
	}
	if x.cost = p.last.cost; x.cost > 1 { // less than that is no use
		x.reserve = (x.reserve + x.cost - 1) / x.cost * x.cost
	}
	if p.lately(now) && p.keeps(b.Share) {
		x.reserve = max(x.reserve, b.Share/x.cost*x.cost)
	}
	starving := (denied || asked > 0) && (x.slack <= round(p.fast*float64(p.Trip)) || x.slack < x.cost) && want.Lack > 0
	if starving {
		// What is denied until the answer comes: the rate beyond that of what comes free, for two trips and a gap.
		least, _ := p.gaps()
		beyond := max(0, p.fast-float64(used-x.spent)/float64(p.Window))
		want.Urgent = min(want.Lack, max(1+round(urgeTrips*beyond*float64(2*p.Trip+least)), x.cost-max(0, x.slack)))
	}
	x.extend()
	x.resend()
	if len(wants) > 0 {
		x.spare()
		x.turn(want.Urgent > 0 && x.slack < x.cost)
		x.give()
	}
	x.recall()
	x.home()
	x.again()
	if b.Period.Number != 0 && now-p.last.asked >= p.Length { // what is not asked for is not used later, since nothing ages
		want.Lack = 0
	}
	hungry, due := p.due(&want, starving, used)
	if !due {
		return x.ops, nil
	}
	if !hungry {
		want.Lack, want.Urgent = 0, 0
	}
	p.queue(&want, now+p.Trip)
	return x.ops, &want
}

// extend answers wants that name loans of which half the time has passed, and those that do not show all that was lent in a period:
// the grant was lost.
func (x *plan) extend() {
	for _, a := range x.wants {
		for i := range x.b.Lent {
			l := &x.b.Lent[i]
			h := find(a.Held, x.b.Region, l.ID)
			if l.Period != 0 {
				if l.Peer != a.From || x.grants[l.ID] != nil || l.Units-l.Base <= units(h) {
					continue
				}
				op := Op{Kind: OpLend, To: a.From, Want: &a.Want}
				if h != nil {
					op.ID = l.ID
				}
				if h != nil || l.Borrower == a.Epoch {
					x.ops = append(x.ops, op)
				}
				continue
			}
			if h != nil && l.Left() > 0 && h.Until-a.Time < x.Length/2 && l.Until-x.Keep() < x.now-x.Length/4 {
				x.ops = append(x.ops, Op{Kind: OpLend, To: a.From, ID: l.ID, Want: &a.Want})
			}
		}
	}
}

// resend repeats grants that a want sent later does not show.
func (x *plan) resend() {
	// Sorted, so that the same messages come in the same order, whoever runs it.
	for _, id := range slices.SortedFunc(maps.Keys(x.grants), ID.compare) {
		g := x.grants[id]
		if x.now > g.at+x.Length || g.times == resends {
			delete(x.grants, id)
			continue
		}
		for _, a := range x.wants {
			h := find(a.Held, x.b.Region, id)
			if known := h != nil && h.Units >= g.Units; a.From == g.to && !known && a.at > g.sent+2*x.Trip {
				x.ops = append(x.ops, Op{Kind: OpSend, To: g.to, Grant: g.Grant})
				g.sent, g.times = x.now, g.times+1
			}
		}
	}
}

// usable reports whether a region may use a loan: a grant that came too late is worth nothing, nor is one of another epoch.
func (x *plan) usable(a *received, l *Loan) bool {
	if l.Period != 0 { // one that was lost long ago is granted once more
		g := x.grants[l.ID]
		return l.Peer == a.From && g != nil && a.at <= g.sent+2*x.Trip
	}
	granted := l.Until - x.Keep()
	return l.Peer == a.From && granted >= a.since && x.now <= granted+x.Length
}

// flying is what a region was lent or returned and has not yet received when it sent its want.
func (x *plan) flying(a *received) (n int64) {
	for i := range x.b.Lent {
		l := &x.b.Lent[i]
		if !x.usable(a, l) {
			continue
		}
		n += max(0, l.Units-l.Base-units(find(a.Held, x.b.Region, l.ID)))
	}
	for _, r := range x.returned {
		if r.to == a.From && r.at > a.at-2*x.Trip {
			n += r.units
		}
	}
	return max(0, n)
}

// units is what was lent of a loan, 0 for none.
func units(l *Loan) int64 {
	if l == nil {
		return 0
	}
	return l.Units
}

// pass moves units to a region: returns what was borrowed from it, lends of the own share, and sends what was
// borrowed elsewhere home, from where it will be lent on.
func (x *plan) pass(a *received, units int64) {
	units = min(units, x.slack)
	units -= x.giveBack(a.From, units)
	if n := min(units, x.free); n > 0 {
		x.lend(a, n)
		x.free, x.slack, units = x.free-n, x.slack-n, units-n
	}
	for i := 0; i < len(x.held) && units > 0; i++ {
		units -= x.giveBack(x.held[i].Peer, units)
	}
}

// lend grows the newest loan that the region knows of, or makes one.
func (x *plan) lend(a *received, units int64) {
	id, n := ID{}, 0
	for i := range x.b.Lent {
		l := &x.b.Lent[i]
		if l.Left() > 0 && x.usable(a, l) {
			n++
		}
		if l.Peer == a.From && find(a.Held, x.b.Region, l.ID) != nil {
			id = l.ID
		}
	}
	if id != (ID{}) || n < maxLoans {
		x.ops = append(x.ops, Op{Kind: OpLend, To: a.From, ID: id, Units: units, Want: &a.Want})
	}
}

// giveBack returns units. A lender whose share is burnt has no use for them.
func (x *plan) giveBack(to string, units int64) (n int64) {
	if a := x.Planner.wants[to]; a != nil && a.Burnt {
		return 0
	}
	for i := range x.held {
		l := &x.held[i]
		if g := min(units-n, l.Left(), x.slack); l.Peer == to && g > 0 {
			x.gaveBack(l, g)
			l.Back += g
			x.slack -= g
			n += g
		}
	}
	return n
}

func (x *plan) gaveBack(l *Loan, units int64) {
	x.ops = append(x.ops, Op{Kind: OpReturn, To: l.Peer, ID: l.ID, Units: units})
	x.returned = append(x.returned, passed{l.Peer, units, x.now})
	x.last.again, x.last.repeats = x.now, 0
}

// share divides what is available among wants by what each picks:
//
//	10 among wants of 8, 8 and 4     4, 4, 2
//	30 among the same                8, 8, 4
func (x *plan) share(avail int64, pick func(a *received) int64) {
	picks, sum := make([]int64, len(x.wants)), int64(0)
	for i, a := range x.wants {
		picks[i] = max(0, pick(a))
		sum += picks[i]
	}
	if sum == 0 || avail <= 0 {
		return
	}
	avail = min(avail, sum)
	var upTo, given int64
	for i, a := range x.wants {
		upTo += picks[i]
		n := upTo*avail/sum - given
		given += n
		if n > 0 {
			x.pass(a, n)
		}
	}
}

// spare lends to regions whose share is burnt what is left of their part of ours, whoever else wants it, and has as much as is
// lacking then left unused until it comes free.
func (x *plan) spare() {
	x.wants = slices.DeleteFunc(x.wants, func(a *received) bool {
		if !a.Burnt {
			return false
		}
		flying := x.flying(a)
		has := flying
		for i := range a.Held {
			if h := &a.Held[i]; h.Peer == x.b.Region {
				has += h.Left()
			}
		}
		n := min(a.Lack-flying, x.part(a.Share, x.b.Share)-has)
		if n <= 0 {
			return false
		}
		if g := min(n, x.free, x.slack); g > 0 {
			x.lend(a, g)
			x.free, x.slack, n = x.free-g, x.slack-g, n-g
		}
		x.kept += n
		return true
	})
	x.kept = max(0, min(x.kept, x.b.own(x.now)))
}

// give passes slack on. Several may give at once: each gives its part of what is asked for, and chance makes that whole.
func (x *plan) give() {
	part := min(1, crowd/float64(x.Regions))
	some := func(f float64) int64 { return int64(math.Floor(f + x.rnd())) }
	less := func(a *received, n int64) int64 { return max(0, n-x.flying(a)) }
	x.share(min(x.slack-x.reserve, x.slack-max(0, x.keep-x.used)), func(a *received) int64 { return less(a, a.Lack) })
	x.share(x.slack-x.reserve, func(a *received) int64 {
		if x.large(&a.Want) {
			return 0
		}
		return some(float64(less(a, a.Urgent)) * part)
	})
	for _, a := range x.wants { // even out for how long slack lasts
		if a.Lack == 0 || a.evened || x.large(&a.Want) {
			continue
		}
		a.evened = true
		mine := max(x.fast, 1e-12)
		g := round((float64(x.slack-x.reserve)*a.Rate - float64(a.Slack+x.flying(a))*mine) / (mine + a.Rate))
		if g = some(float64(g) * part); g >= 1 {
			x.pass(a, min(g, x.slack-x.reserve, some(float64(less(a, a.Lack))*part)))
		}
	}
}

// recall returns to lenders that are short of their own share, and leaves unused what cannot be returned yet: for as
// long as the want holds, or as two units take to come free.
func (x *plan) recall() {
	for _, a := range x.wants {
		if a.Burnt {
			continue
		}
		short := a.Share - a.Ceil
		if cost := x.costOf(&a.Want); a.Share/cost == a.Ceil/cost { // it could not admit more with it
			continue
		}
		n := max(min(a.Urgent, short), min(a.Need, a.Share)-a.Ceil) - x.flying(a)
		if x.b.burnt(x.now) {
			n -= x.part(a.Share, x.b.Share)
		}
		if n > 0 && a.Urgent > 0 && short >= max(1, a.Share/10) {
			x.owed[a.From] = owed{n, max(x.now+2*x.Tick, a.at+2*x.Window/x.Bound)}
		}
	}
	var debt int64
	for _, to := range slices.Sorted(maps.Keys(x.owed)) {
		o := x.owed[to]
		if o.units -= x.giveBack(to, o.units); o.units <= 0 || o.until <= x.now {
			delete(x.owed, to)
			continue
		}
		x.owed[to] = o
		for i := range x.held {
			if x.held[i].Peer == to {
				debt += min(o.units, x.held[i].Left())
			}
		}
	}
	switch debt = max(0, min(debt, x.ceiling-x.floor(x.b, x.now))) + x.kept; {
	case x.b.Period.Number != 0: // nothing comes free
	case debt > 0:
		_, most := x.gaps()
		x.ops = append(x.ops, Op{Kind: OpRecall, Units: debt, Until: x.now + 2*most})
	case x.b.Recall > 0:
		x.ops = append(x.ops, Op{Kind: OpRecall})
	}
}

// home returns what is free of loans that are over, and what is not needed of others: seldom, and not to the last unit, unless
// nothing is wanted.
func (x *plan) home() {
	for i := range x.b.Held {
		l := &x.b.Held[i]
		if n := x.b.free(x.now, x.used, l); l.Until <= x.now && n > 0 {
			x.gaveBack(l, n)
		}
	}
	if x.turns(x.b.Share) && x.lately(x.now) {
		return
	}
	spare, loose := x.slack, int64(0)
	if !x.idle() {
		loose = round(homeLoose * math.Sqrt(float64(max(x.keep-x.spent, 1))))
		spare = min(x.slack-x.reserve, x.ceiling-max(x.keep, x.b.own(x.now)+Left(x.b.Lent, x.b.Period.Number))) - loose
	}
	if spare <= loose {
		return
	}
	for i := 0; i < len(x.held) && spare > 0; i++ {
		spare -= x.giveBack(x.held[i].Peer, spare)
	}
}

// again repeats returns ever more seldom, since they may have been lost, or the lender is cut off. Wants show them too.
func (x *plan) again() {
	x.returned = slices.DeleteFunc(x.returned, func(r passed) bool { return x.now-r.at > 10*x.Trip })
	_, most := x.gaps()
	if x.now-x.last.again < 2*most<<min(x.last.repeats, 20) {
		return
	}
	x.last.again, x.last.repeats = x.now, x.last.repeats+1
	for _, h := range x.b.Held {
		if h.Back > 0 {
			x.ops = append(x.ops, Op{Kind: OpReturn, To: h.Peer, ID: h.ID})
		}
	}
}

// mostPatience is how long a region waits at most until it asks again for what nobody has, µs.
const mostPatience = 60_000_000

// Patience is for how long a region that lacks units of a period has not to ask again: ever longer, since a quota that is used up stays
// so until the period ends.
func (p *Planner) Patience(now int64) int64 { return max(0, min(mostPatience, (now-p.last.enough)/8)) }

// due reports whether there is a lack, and whether it is time to say so.
func (p *Planner) due(w *Want, starving bool, used int64) (hungry, due bool) {
	least, most := p.gaps()
	hungry = w.Lack > 0 && (starving || float64(w.Ceil-used) < 1+min(0.1*float64(w.Ceil), 8*p.fast*float64(p.Trip)))
	since := w.Time - p.last.want
	if since < 0 { // the clock went back
		since = most
	}
	var got int64
	ending, patient := false, false
	for _, h := range w.Held {
		got += h.Units
		// What is over can still be extended, but the lender may be out of sight for long.
		ending = ending || h.Left() > 0 && h.Until-w.Time < p.Length/2 && since >= max(most, (w.Time-h.Until)/8)
	}
	_, waits := p.waits[w.From]
	comes := got > p.last.got
	if comes || !hungry || w.Time-p.last.planned > p.Length {
		p.last.enough = w.Time
	}
	p.last.planned = w.Time
	if w.Period != 0 {
		patient = since < p.Patience(w.Time)
	}
	switch {
	case patient:
	case starving && p.last.had == 0 && p.turns(w.Share) && w.Time-p.last.denied > 2*p.Tick: // it waits for its turn
		due = since >= p.Length/8
	case hungry && starving && !p.last.starving:
		due = since >= least
	case ending || waits && w.Ceil > w.Slack: // its turn is over
		due = true
	case hungry:
		due = since >= most || comes && starving && since >= least
	case p.last.starving:
		due = since >= least // enough: nothing more, please
	}
	if !due {
		return hungry, false
	}
	p.last.want, p.last.starving, p.last.got = w.Time, starving, got
	return hungry, true
}
