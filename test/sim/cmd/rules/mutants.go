package main

import (
	"fmt"
	"strings"
)

// mutant is the program without one rule.
type mutant struct {
	name     string
	file     string
	from, to string // from is there once
	only     string // the faults of the worlds that show it, as given to cmd/sim; "" for all
	test     string // or the package and the test that shows it, as chance hardly ever does
}

const (
	bookFile     = "quota/loan/loan.go"
	planFile     = "region/loans/plan.go"
	epochFile    = "region/state/epoch.go"
	ceilingsFile = "region/view/ceilings.go"
	memoryFile   = "limiter/memstore/store.go"
	holdsFile    = "limiter/memstore/holds.go"
	durableFile  = "test/sim/durable.go" // region.lua in Go
	storeFile    = "test/sim/region.go"  // and in_force of general.lua
	clockFile    = "clock/clock.go"
	limitFile    = "quota/limit.go"
	overrideFile = "quota/override.go"
	overlayFile  = "region/overrides/table.go"
	converges    = "./region/overrides TestConvergenceOnANetwork"
	smallWorlds  = "./test/loansim TestSmallWorlds"
	reservations = "./test/sim TestReservationsOutlastLoans"
	lossVoids    = "if b.State.Epoch < b.LostIn {"
	fenceFrom    = "r.NowUS - (r.Uncertainty + Unseen).Microseconds(), r.NowUS + (r.Uncertainty + budget).Microseconds(), true"
)

func mutants() []mutant {
	return []mutant{
		{name: "borrowed units are lent on", file: bookFile, test: smallWorlds, from: "max(0, min(c-used, b.own(now), b.unheld(now, b.Holds.Until)))", to: "max(0, c-used)"},
		{name: "units in use are lent", file: bookFile, from: "min(c-used, b.own(now), b.unheld(now, b.Holds.Until))", to: "min(c, b.own(now))"},
		{name: "units in use are returned", file: bookFile, from: "b.free(now, used, l))", to: "b.free(now, 0, l))"},
		{name: "a loan that is over is used", file: bookFile, test: "./quota/loan TestOver", from: "return l.Until > now && l.Period == period", to: "return l.Period == period"},
		{name: "a record ends with its loan", file: bookFile, from: "bySlowest(t.Length+t.lingers())", to: "bySlowest(t.Length)"},
		{name: "a grant that comes again is added again", file: bookFile, from: "l.Units = max(l.Units, g.Units);", to: "l.Units += g.Units;"},
		{name: "a loan counts from the receipt of its grant", file: bookFile, from: "until := g.Time + b.Terms.Length", to: "until := now + b.Terms.Length"},
		{name: "an extension makes a loan anew", file: bookFile, from: "if !g.New || len", to: "if len"},
		{name: "a grant of another epoch is accepted", file: bookFile, test: smallWorlds, from: "g.Epoch == b.Bound.Epoch && g.Epoch == b.State.Epoch && ", to: ""},
		{name: "loans held outlast their epoch", file: bookFile, from: "		b.Held = nil\n		for i", to: "		for i"},
		{name: "records do not stand anew in a new epoch", file: bookFile, from: "			l.Until = min(max(l.Until, now+terms.Keep()), now+terms.KeepAny())\n", to: "			_, _ = l, terms\n"},
		{name: "loans beyond a smaller share are extended", file: bookFile, from: "case Left(b.Lent, 0) > b.Share:", to: "case false:"},
		{name: "a store that lost its data is used at once", file: bookFile, from: "return now < b.BurntUntilUS", to: "return false"},
		{name: "a burnt share is lent", file: bookFile, from: "min(c-used, b.own(now), b.unheld(now, b.Holds.Until))", to: "min(c-used, b.Share-Left(b.Lent))"},
		{name: "loans of a burnt share are extended", file: bookFile, from: "b.Free(now, used))); b.burnt(now) ||", to: "b.Free(now, used))); false ||"},
		{name: "the store does not apply the bound", file: memoryFile, from: "min(u.ceilings[i], limits[i].Bounded), bound", to: "u.ceilings[i], bound"},
		{name: "more is returned than the store gave back", file: planFile, from: "Loan: o.ID, Back: r.Back})", to: "Loan: o.ID, Back: r.Back + 1})"},
		{name: "a store that was rolled back is not noticed", file: epochFile, from: "	if missing > e.excused() {\n", to: "	if false {\n"},
		{name: "a store that was emptied is a new one", file: durableFile, from: `renew == "lost" || epoch == "" && (known != "" || top != "0")`, to: `renew == "lost"`},
		{name: "an epoch that ended decides", file: storeFile, from: "if bounds[i].Epoch != t.durable.epoch() {", to: "if t.away {"},
		{name: "a clock that stepped back is not noticed", file: epochFile, from: "	case step < -clock.Unseen:\n", to: "	case false:\n"},
		{name: "a clock that stepped forward closes nothing", file: epochFile, from: "		return stepped\n", to: "		return another\n"},
		{name: "calls have no fence", file: clockFile, only: "step", from: "return " + fenceFrom, to: "return 0, 0, true"},
		{name: "calls have a fence against steps back alone", file: clockFile, only: "step", from: "return " + fenceFrom, to: "return r.NowUS - (r.Uncertainty + Unseen).Microseconds(), 0, true"},
		{name: "calls have a fence against steps forward alone", file: clockFile, test: "./clock TestFence", from: "return " + fenceFrom, to: "return 0, r.NowUS + (r.Uncertainty + budget).Microseconds(), true"},
		{name: "loans have no fence", file: memoryFile, test: "./limiter/memstore TestLoans", from: "	if bound.At(u.now).Epoch == 0 {\n		return store", to: "	if bound.Epoch == 0 {\n		return store"},
		{name: "records stand as if clocks were even", file: bookFile, test: "./quota/loan TestKeep", from: "int64(million+quota.RatePPM)/percent, int64(million-quota.RatePPM)/percent", to: "int64(million/percent), int64(million/percent)"},
		{name: "a burnt period is open", file: limitFile, test: "./test/sim TestCalendarPlans", from: "burnt := period <= b.BurntThrough", to: "burnt := period < 0"},
		{name: "a period before a burnt one is open", file: limitFile, test: "./limiter/memstore TestBoundOfPeriods", from: "burnt := period <= b.BurntThrough", to: "burnt := period < b.BurntThrough"},
		{name: "a loan is used in any period", file: bookFile, test: "./limiter/memstore TestLoansOfPeriods", from: "return l.Until > now && l.Period == period", to: "return l.Until > now"},
		{name: "a request of another period is answered", file: bookFile, test: "./limiter/memstore TestLoansOfPeriods", from: " || r.Period != b.Period.Number {", to: " {"},
		{name: "a loan that its borrower lost is granted again", file: bookFile, test: "./limiter/memstore TestLoansOfPeriods", from: "	case l.Borrower == r.Epoch:\n", to: "	case true:\n"},
		{name: "a grant that names a loan makes it anew", file: bookFile, test: "./limiter/memstore TestLoansOfPeriods", from: "		return l, false\n", to: "		return l, true\n"},
		{name: "what a borrower lost is lent to nobody", file: bookFile, test: "./limiter/memstore TestLoansOfPeriods", from: "b.newID(now), l.Left(), 0, l.Left(), r.Epoch", to: "b.newID(now), 0, 0, 0, r.Epoch"},
		{name: "a loss leaves loans of its period", file: bookFile, test: "./limiter/memstore TestLoansOfPeriods", from: lossVoids, to: "if false {"},
		{name: "a region that is reopened has its loans again", file: bookFile, test: "./limiter/memstore TestLoansAfterALoss", from: lossVoids, to: "if b.State.Epoch < b.LostIn && b.BurntThrough > 0 {"},
		{name: "a loss that another epoch follows leaves loans", file: bookFile, test: "./limiter/memstore TestLoansAfterALoss", from: lossVoids, to: "if b.State.Epoch < b.LostIn && b.Bound.Epoch == b.LostIn {"},
		{name: "an epoch in which nothing is lost voids loans", file: bookFile, test: "./limiter/memstore TestLoansAfterALoss", from: lossVoids, to: "if b.State.Epoch < b.Bound.Epoch && b.LostIn > 0 {"},
		{name: "a record ends with its period", file: bookFile, test: "./limiter/memstore TestLoansOfPeriods", from: "return b.Period.End + b.Terms.Past", to: "return b.Period.End"},
		{name: "a loan of another period is returned", file: bookFile, test: "./limiter/memstore TestLoansOfPeriods", from: "	case l.Period == b.Period.Number:\n", to: "	default:\n"},
		{name: "a process that knows of no loss has what was void", file: bookFile, test: "./limiter/memstore TestLoansOfPeriods", from: " && g.Epoch == b.State.Epoch", to: ""},
		{name: "a reservation goes on in a period that was lent", file: bookFile, test: "./limiter/memstore TestLoansOfPeriods", from: "return l.Period > b.Period.Number })", to: "return false })"},
		{name: "a reservation goes on in a period that was used", file: bookFile, test: "./limiter/memstore TestLoansOfPeriods", from: "ends := b.Begun || ", to: "ends := "},
		{name: "a grant of any period is accepted", file: bookFile, test: "./limiter/memstore TestLoansOfPeriods", from: " && g.Period == b.Period.Number", to: ""},
		{name: "a request of an earlier epoch is answered", file: bookFile, test: "./limiter/memstore TestLoansOfPeriods", from: "l.Borrower > r.Epoch || units == 0", to: "units == 0"},
		{name: "a reservation of a later period is settled as one", file: holdsFile, test: "./limiter/memstore TestLoansOfPeriods", from: "r.made >= now.End", to: "false"},
		{name: "a reservation on a loan outlasts its period", file: bookFile, test: "./limiter/memstore TestLoansOfPeriods", from: "ends || l.Period != 0", to: "ends"},
		{name: "windows are not longer by a fast clock", file: limitFile, test: "./limiter/memstore TestBoundOfAFastClock", from: "return w + (w*b.FastPPM+999_999)/1_000_000", to: "return w"},
		{name: "what a burnt share's loans are used for does not count", file: limitFile, test: "./limiter/memstore TestBehindTheEpoch", from: "		return b.SinceUS\n", to: "		return nowUS\n"},
		{name: "nobody is asked what another server lacks", file: durableFile, only: "failover-killed", from: "				words = append(words, f[0])\n", to: "				_ = f\n"},
		{name: "a first process goes on in the old epoch", file: epochFile, from: "e.confirmed = !first || r.began && sure //", to: "e.confirmed = true //"},
		{name: "a step that is noted answers for a loss", file: epochFile, test: "./region/state TestLossBesideAStep", from: "noted := now.LostIn > e.store.LostIn", to: "noted := now.Lost > e.store.Lost"},
		{name: "a step that another noted answers for a loss", file: epochFile, test: "./region/state TestLossBesideAStep", from: "noted || e.renew < lost && (", to: "noted || ("},
		{name: "a step that nobody watched is not noticed", file: epochFile, test: "./region/state TestUnwatchedStep", from: "e.renew = max(another, unwatched())", to: "e.renew = another"},
		{name: "a record ends before reservations on its loan", file: bookFile, test: reservations, from: "return t.MaxTTL + t.Window", to: "return t.Window"},
		{name: "a share is burnt for less than reservations last", file: ceilingsFile, test: reservations, from: ".Holding(max(terms.MaxTTL, maxTTL))", to: ".Holding(0 * maxTTL)"},
		{name: "a reservation is extended without end", file: holdsFile, test: reservations, from: "		ttl = max(0, min(ttl, r.last-u.now))\n", to: ""},
		{name: "a reservation outlasts its epoch", file: holdsFile, test: reservations, from: "set < 0 || r.epoch != u.epoch", to: "set < 0"},
		{name: "a reservation lasts longer than its loans allow", file: memoryFile, test: "./test/sim TestLongerReservationsWaitForLenders", from: "u.allows = min(u.allows, b.MaxTTL(u.now))", to: "u.allows = b.Terms.MaxTTL"},
		{name: "a reservation outlasts a loan that came after it", file: bookFile, test: "./test/sim TestReservationsUnderShorterLoans", from: "(l.Period != 0 || l.Until+l.MaxTTL >= until)", to: "true"},
		{name: "what is held is lent and returned", file: memoryFile, from: "	b.Holds = u.keys[0].open(u.now)\n", to: ""},
		{name: "what is held is admitted again", file: holdsFile, from: "k.keyState.judge(l, from, ceiling-k.held(), k.sum)\n	if", to: "k.keyState.judge(l, from, ceiling, k.sum)\n	if"},
		{name: "a larger share holds at once", file: ceilingsFile, from: "b.Share = min(s.Share(units), c.heldShare(&s.hold, units, now, keep), c.heldShare(&s.inherited, units, now, keep))", to: "b.Share = region.FloorOf(c.limits.Load().topology.Weights).Share(c.o.Self.Region, units)"},
		{name: "a larger share holds once all confirmed it", file: ceilingsFile, from: "if h.floor == nil || now-h.until >= keep {", to: "if h.floor == nil || now > h.until {"},
		{name: "the override that arrives last wins", file: overlayFile, test: converges, from: "if o.Version.Compare(before.Version) <= 0 {", to: "if o.Version.Compare(before.Version) == 0 {"},
		{name: "an emptied Redis is not given its overrides again", file: "region/overrides/overlay.go", test: converges, from: "case !holds(text, o):", to: "case text != \"\" && !holds(text, o):"},
		{name: "a deleted override is forgotten at once", file: overrideFile, test: converges, from: "nowUS-ended > OverrideKept.Microseconds()", to: "nowUS > ended"},
		{name: "an override has no end", file: overrideFile, test: converges, from: "(o.ExpiresUS == 0 || nowUS < o.ExpiresUS)", to: "true"},
		{name: "overrides that were lost are not asked for", file: "region/overrides/replicate.go", test: converges, from: "f.askedAt = now\n", to: "return\n"},
		{name: "an override is not kept beside another process's", file: "region/overrides/replicate.go", test: "./region/overrides TestAcknowledgedIsKept", from: "				left = append(left, a)\n", to: ""},
	}
}

// apply returns the source without the rule.
func (m *mutant) apply(source string) (string, error) {
	if n := strings.Count(source, m.from); n != 1 {
		return "", fmt.Errorf("%s: %s has %q %d times: bring the list of mutants up to date", m.name, m.file, m.from, n)
	}
	return strings.Replace(source, m.from, m.to, 1), nil
}
