package redisstore

import (
	"cmp"
	"crypto/sha1" //nolint:gosec // Redis names scripts by their SHA-1
	"embed"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/regiond/regiond/limiter/store"
	"github.com/regiond/regiond/quota"
	"github.com/regiond/regiond/quota/loan"
)

//go:embed lua/*.lua
var lua embed.FS

// luaOf is the text of lua/NAME.lua.
func luaOf(name string) string {
	text, err := lua.ReadFile("lua/" + name + ".lua")
	if err != nil {
		panic(err)
	}
	return string(text)
}

// script is a Lua source addressed by its SHA-1, which is also its version: two
// releases of regiond on one Redis run each their own.
type script struct {
	source string
	sha    string
}

// decideScript is lua/*.lua joined behind now, which defines TIME ("": now.lua), and EPOCH, the hash with the epoch
// of the region's data; "" for none. What only uncommon checks need is in a function.
func decideScript(now, epoch string) script {
	files := func(names string) (text string) {
		for name := range strings.FieldsSeq(names) {
			text += luaOf(name) + "\n"
		}
		return text
	}
	source := cmp.Or(now, luaOf("now")) + "\nlocal EPOCH = '" + epoch + "'\n" + files("base usage_counters quick") +
		"local function general()\n" + files("clock log window_gcra periods loans holds general") + "end\n" + files("decide")
	sum := sha1.Sum([]byte(source)) //nolint:gosec // see above
	return script{source: source, sha: hex.EncodeToString(sum[:])}
}

// appendCalls appends the EVALSHA arguments of some calls: number of keys, KEYS,
// ARGV as lua/decide.lua describes them. Equal plans are sent once. They point into
// calls, since a string in an interface would be an allocation each. nowUS is about the TIME at which they run.
func appendCalls(args []any, nonce string, calls []store.Call, nowUS int64, fence func(quota.Bound) quota.Bound) []any {
	count := len(args)
	args = append(args, nil)
	for i := range calls {
		args = appendKeys(args, &calls[i])
	}
	args[count] = len(args) - count - 1
	args[count+1] = *args[count+1].(*string) // a cluster client reads it to know the slot
	plans := make([]*store.Call, 0, 8)       // the first of each plan
	place := make([]int, len(calls))         // of a call's plan, from 1
	for i := range calls {
		c := &calls[i]
		at := slices.IndexFunc(plans, func(p *store.Call) bool { return p.Plan == c.Plan && slices.Equal(p.Bounds, c.Bounds) })
		if at < 0 {
			at, plans = len(plans), append(plans, c)
		}
		place[i] = at + 1
	}
	args = append(args, nonce, len(plans))
	for _, p := range plans {
		args = appendBounds(appendPeriods(append(args, p.Plan.Wire...), p.Plan, nowUS), p, fence)
	}
	for i := range calls {
		args = appendCall(args, place[i], &calls[i])
	}
	return args
}

// appendKeys appends the keys of a call: the record of its reservation, its own, those of its plan, its counters, its loans, and
// its holds.
func appendKeys(args []any, c *store.Call) []any {
	if c.Op.OfReservation() {
		name := store.ReservationKey(c.Keys[0], c.Hold.ID)
		args = append(args, &name)
	}
	if c.Record != "" {
		args = append(args, &c.Record)
	}
	for n := range c.Keys {
		args = append(args, &c.Keys[n])
	}
	var array [192]byte
	for n := range c.Counters {
		name := string(store.AppendCounterKey(array[:0], &c.Counters[n]))
		args = append(args, &name)
	}
	n := 0
	for _, l := range c.Plan.Limits {
		if l.Scope != quota.ScopeGlobal {
			continue
		}
		if l.MaxOvershoot > 0 && c.Bounds != nil {
			name := string(store.AppendLoansKey(array[:0], &c.Counters[n]))
			args = append(args, &name)
		}
		n++
	}
	for i := range c.Plan.Keys {
		if c.Plan.Keys[i].Holds {
			name := store.HoldsKey(c.Keys[i])
			args = append(args, &name)
		}
	}
	return args
}

// appendPeriods appends the periods about a time for each key that has any.
func appendPeriods(args []any, plan *store.KeyPlan, nowUS int64) []any {
	for i := range plan.Keys {
		c := plan.Keys[i].Limits[0].Calendar
		if c == nil {
			continue
		}
		now := c.At(nowUS)
		next := c.Next(now)
		for _, p := range [...]quota.Period{c.Before(now), now, next, c.Next(next)} {
			args = append(args, p.Number, p.Begin)
		}
	}
	return args
}

// appendBounds appends the bounds of a plan, each with its fence.
func appendBounds(args []any, c *store.Call, fence func(quota.Bound) quota.Bound) []any {
	switch {
	case c.Plan.Bounded == 0:
		return args
	case c.Bounds == nil:
		return append(args, "")
	}
	n := 0
	for _, l := range c.Plan.Limits {
		if l.MaxOvershoot > 0 {
			b, terms := fence(c.Bounds[n]), loan.TermsOfLimit(l)
			burnt, since := b.BurntUntilUS, b.SinceUS
			if l.Calendar != nil {
				burnt, since = b.BurntThrough, int64(b.LostIn)
			}
			args = append(args, b.Share, fmt.Sprintf("%010d", b.Epoch), burnt, since, b.FromUS, b.ToUS,
				terms.Keep(), terms.Length, b.WindowUS(l), terms.MaxTTL)
			n++
		}
	}
	return args
}

func appendCall(args []any, plan int, c *store.Call) []any {
	if common(c) {
		args = append(args, plan)
	} else {
		args = append(args, -plan, string(c.Op))
		if c.Costs == nil {
			args = append(args, c.Cost, fingerprint(c))
		} else {
			args = append(args, "", fingerprint(c))
			for i := range c.Costs {
				args = append(args, &c.Costs[i])
			}
		}
		if h := &c.Hold; c.Op.OfReservation() {
			args = append(args, store.HoldName(h.ID), h.ID, h.TTLUS, h.KeepUS, h.GoneUS)
		}
	}
	n := 0
	for i, l := range c.Plan.Limits {
		if l.Scope != quota.ScopeGlobal {
			continue
		}
		args = append(args, &c.Ceilings[i])
		if c.Known == nil {
			args = append(args, 0, 0, 0)
			continue
		}
		known := &c.Known[n]
		args = append(args, &known.Generation, &known.Bucket, &known.Units)
		n++
	}
	for n := range c.Plan.GlobalPeriods {
		if c.Periods == nil {
			args = append(args, 0)
		} else {
			args = append(args, &c.Periods[n])
		}
	}
	if c.Op == store.OpLoans {
		args = appendLoans(args, c.Loans)
	}
	return args
}

// common is whether the script may decide a call without a state.
func common(c *store.Call) bool {
	return c.Op == store.OpCheck && c.Cost == 1 && c.Costs == nil && c.Print == ""
}

// appendLoans appends operations, as lua/loans.lua describes them.
func appendLoans(args []any, ops []store.LoanOp) []any {
	count := len(args)
	args = append(args, nil)
	for i := range ops {
		o := &ops[i]
		switch o.Kind {
		case store.LoanLend:
			r := &o.Request
			args = append(args, "lend", o.Units, r.From, loanID(r.ID), r.Epoch, r.Period)
		case store.LoanAccept:
			g := &o.Grant
			args = append(args, "accept", g.From, loanID(g.ID), g.Units, g.New, g.Epoch, g.Time, g.MaxTTL, g.Period)
		case store.LoanReturn:
			args = append(args, "return", o.Units, o.Peer, loanID(o.ID))
		case store.LoanReturned:
			args = append(args, "returned", o.Units, o.Peer, loanID(o.ID))
		case store.LoanRecall:
			args = append(args, "recall", o.Units, o.Until)
		}
	}
	args[count] = len(args) - count - 1
	return args
}

func loanID(id loan.ID) string { return fmt.Sprintf("%d %d", id.Epoch, id.Stamp) }

var errReply = errors.New("unexpected reply of the decision script")

// parseReplies decodes the reply of decide.lua into verdicts. It refuses a reply
// whose nonce is another call's: the connection is out of step, and a decision
// about somebody else must never be used.
func parseReplies(reply any, nonce string, calls []store.Call, verdicts []store.Verdict) error {
	all, _ := reply.([]any)
	r := &reader{parts: all}
	head := r.text()
	got, timeText, _ := strings.Cut(head, " ")
	time, err := strconv.ParseInt(timeText, 10, 64)
	if got != nonce || err != nil || time <= 0 {
		return fmt.Errorf("%w: it begins with %.40q", errReply, cmp.Or(head, fmt.Sprint(reply)))
	}
	for i := range calls {
		before := r.parts
		if parseVerdict(r, &calls[i], &verdicts[i]); r.bad {
			return fmt.Errorf("%w: a verdict of %.80q", errReply, fmt.Sprint(before...))
		}
		verdicts[i].StoreUS = time
	}
	if len(r.parts) > 0 {
		return fmt.Errorf("%w: %d parts more than for %d calls", errReply, len(r.parts), len(calls))
	}
	return nil
}

// reader reads the parts of a reply in turn.
type reader struct {
	parts []any
	bad   bool // something was not what was asked for
}

// readText is a reader of the words of a text.
func readText(text string) *reader {
	words := strings.Fields(text)
	r := &reader{parts: make([]any, len(words))}
	for i, word := range words {
		r.parts[i] = word
	}
	return r
}

func (r *reader) next() (part any) {
	if len(r.parts) == 0 {
		r.bad = true
		return nil
	}
	part, r.parts = r.parts[0], r.parts[1:]
	return part
}

// done reports whether all was what was asked for, and nothing is left.
func (r *reader) done() bool { return !r.bad && len(r.parts) == 0 }

func (r *reader) text() string {
	text, ok := r.next().(string)
	r.bad = r.bad || !ok
	return text
}

// number reads one that is not below 0, atLeast one that is not below least.
func (r *reader) number() int64 { return r.atLeast(0) }

func (r *reader) atLeast(least int64) (n int64) {
	switch part := r.next().(type) {
	case int64:
		n = part
	case string:
		var err error
		n, err = strconv.ParseInt(part, 10, 64)
		r.bad = r.bad || err != nil
	default:
		r.bad = true
	}
	r.bad = r.bad || n < least
	return n
}

// counter reads that of a limit.
func (r *reader) counter(l *quota.Limit) quota.Counter {
	c := quota.Counter{Generation: r.number(), Bucket: r.number(), Units: r.number()}
	if l.Calendar != nil {
		c.EndsUS = r.number()
	}
	return c
}

// parseVerdict reads the reply to a call. The slice that v had for its limits is used again.
func parseVerdict(r *reader, c *store.Call, v *store.Verdict) {
	*v = store.Verdict{Limits: v.Limits[:0]}
	if len(r.parts) > 0 {
		if _, ok := r.parts[0].(int64); ok {
			parseAdmission(r, c, v)
			return
		}
	}
	switch outcome := r.text(); outcome {
	case "a", "d", "l", "w", "s":
		v.Outcome = outcome[0]
		parseLimits(r, c.Plan.Limits, func(i int) bool { return hasBound(c.Plan.Limits[i], c.Bounds != nil) }, v)
		switch {
		case v.Outcome == store.Settled:
			v.Hold = parseSettled(r, c)
		case c.Op == store.OpReserve && !v.Undecided():
			v.Hold = parseHeld(r, c.Cost)
		}
		if !v.Undecided() {
			parseGauges(r, c, v, false)
		}
	case "n":
		v.Outcome, v.Hold = store.Replayed, parseSettled(r, c)
	case "k":
		v.Outcome, v.Hold = store.Admitted, store.HoldVerdict{ID: c.Hold.ID, Held: r.number(), ExpiresUS: r.number()}
		v.Limits = slices.Grow(v.Limits, len(c.Plan.Limits))[:len(c.Plan.Limits)]
		clear(v.Limits)
		parseGauges(r, c, v, true)
	case "g", "t":
		v.Outcome = outcome[0]
	case "m":
		v.Outcome = store.Replayed
		parseReplay(r.text(), c, v)
	case "x":
		v.Outcome = store.Reused
	case "o":
		v.Outcome = store.Admitted
		r.bad = c.Op != store.OpLoans || !parseLoans(readText(r.text()), c, v)
	case "e":
		v.Err = verdictError(r.text())
	default:
		r.bad = true
	}
}

// parseHeld reads what the reply to a reserve says of its holds.
func parseHeld(r *reader, amount int64) (h store.HoldVerdict) {
	if h.ID, h.ExpiresUS = r.number(), r.number(); h.ID == 0 {
		return store.HoldVerdict{TooMany: h.ExpiresUS == 1}
	}
	h.Held = amount
	return h
}

// parseGauges reads the gauges of the limits of a call, each behind its counter or not.
func parseGauges(r *reader, c *store.Call, v *store.Verdict, counters bool) {
	for i, limit := range c.Plan.Limits {
		if limit.Scope != quota.ScopeGlobal || !limit.Holds() {
			continue
		}
		l := &v.Limits[i]
		if counters {
			l.Counter = r.counter(limit)
		}
		l.Gauge = quota.Gauge{Sequence: r.number(), Units: r.number(), UntilUS: r.number()}
	}
}

func parseSettled(r *reader, c *store.Call) store.HoldVerdict {
	return store.HoldVerdict{ID: c.Hold.ID, Held: r.number(), Charged: r.number(), Released: r.number() == 1, ExpiresUS: r.number()}
}

// parseAdmission reads an admission by quick.lua, which says of no limit what the caller knows.
func parseAdmission(r *reader, c *store.Call, v *store.Verdict) {
	limits := c.Plan.Limits
	v.Outcome, v.Limits = store.Admitted, slices.Grow(v.Limits, len(limits))[:len(limits)]
	r.bad = !common(c)
	for i, limit := range limits {
		l := &v.Limits[i]
		*l = store.LimitVerdict{Remaining: r.number(), ResetUS: limit.WindowUS()}
		if limit.Scope == quota.ScopeGlobal {
			l.Counter = r.counter(limit)
		}
		if hasBound(limit, c.Bounds != nil) {
			l.Bounded = r.number()
		}
	}
}

// parseLimits reads the numbers of limits. bounded is whether the i-th has that under its bound.
func parseLimits(r *reader, limits []*quota.Limit, bounded func(i int) bool, v *store.Verdict) {
	v.Limits = slices.Grow(v.Limits, len(limits))[:len(limits)]
	clear(v.Limits)
	lost := v.Undecided() // the counters alone
	for i, limit := range limits {
		l := &v.Limits[i]
		if !lost {
			l.Remaining, l.WaitUS, l.ResetUS = r.number(), r.atLeast(-1), r.number()
		}
		if limit.Scope == quota.ScopeGlobal {
			if !lost {
				l.Over = r.number()
			}
			l.Counter = r.counter(limit)
			if !lost && bounded(i) {
				l.Bounded = r.number()
			}
		}
		if !lost && limit.Holds() {
			l.Held = r.number()
		}
	}
}

// parseLoans reads the reply of run in lua/loans.lua, and reports whether it is one.
func parseLoans(r *reader, c *store.Call, v *store.Verdict) bool {
	maxTTL := loan.TermsOfLimit(c.Plan.Limits[0]).MaxTTL
	id := func() loan.ID { return loan.ID{Epoch: uint32(r.number()), Stamp: r.number()} }
	of := func() (l []loan.Loan) {
		for range r.number() {
			if r.bad {
				return nil
			}
			l = append(l, loan.Loan{
				Peer: r.text(), ID: id(), Units: r.number(), Back: r.number(), Until: r.number(), MaxTTL: r.number(),
				Period: r.number(), Borrower: uint32(r.number()), Base: r.number(),
			})
		}
		slices.SortFunc(l, loan.Compare)
		return l
	}
	v.Loans = &store.Loans{Used: r.number(), Results: make([]store.LoanResult, len(c.Loans))}
	v.Loans.Period = quota.PeriodUnits{Number: r.number(), End: r.number()}
	v.Loans.State = loan.State{Epoch: uint32(r.number()), Recall: r.number(), RecallUntil: r.number(), Lent: of(), Held: of()}
	for i := range c.Loans {
		o, result := &c.Loans[i], &v.Loans.Results[i]
		switch o.Kind {
		case store.LoanLend:
			g := loan.Grant{ID: id(), Units: r.number(), New: r.number() == 1, Epoch: o.Request.Epoch, Time: o.Request.Time, MaxTTL: maxTTL, Period: o.Request.Period}
			if g.ID != (loan.ID{}) {
				result.Grant = g
			}
		case store.LoanAccept:
			result.Changed = r.number() == 1
		case store.LoanReturn:
			result.Back = r.number()
		default:
			r.number()
		}
	}
	return r.done()
}

// errOtherTime is of a call that took the server's TIME for another, so that the periods it came with are not those of now.
var errOtherTime = fmt.Errorf("%w: the clock of redis steps about", store.ErrPartition)

// verdictError distinguishes a store that refuses to write from a partition whose data
// cannot be read. The code of an error comes first; before Redis 7 its place in the script
// precedes it: "@user_script: 83: -OOM command not allowed".
func verdictError(text string) error {
	rest := text
	if place, found := strings.CutPrefix(text, "@user_script: "); found {
		_, rest, _ = strings.Cut(place, ": ")
	}
	rest = strings.TrimPrefix(rest, "-")
	if strings.HasPrefix(rest, "ERR The user executing the script can't") { // what Redis 7.0 says for NOPERM
		rest = "NOPERM"
	}
	if text == "AGAIN" {
		return errOtherTime
	}
	switch code, _, _ := strings.Cut(rest, " "); code {
	case "OOM", "READONLY", "MISCONF", "NOREPLICAS", "NOPERM", "LOADING", "CLUSTERDOWN", "MASTERDOWN":
		return &store.Error{Reason: quota.ReasonRedisRefused, Err: errors.New(text)}
	}
	return fmt.Errorf("%w: %s", store.ErrPartition, text)
}
