package redisstore

import (
	"crypto/sha1" //nolint:gosec // Redis names scripts by their SHA-1
	_ "embed"
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

var (
	//go:embed lua/now.lua
	nowLua string
	//go:embed lua/base.lua
	baseLua string
	//go:embed lua/usage_counters.lua
	usageLua string
	//go:embed lua/quick.lua
	quickLua string
	//go:embed lua/clock.lua
	clockLua string
	//go:embed lua/log.lua
	logLua string
	//go:embed lua/window_gcra.lua
	windowLua string
	//go:embed lua/loans.lua
	loansLua string
	//go:embed lua/general.lua
	generalLua string
	//go:embed lua/decide.lua
	decideLua string
)

// script is a Lua source addressed by its SHA-1, which is also its version: two
// releases of regiond on one Redis run each their own.
type script struct {
	source string
	sha    string
}

func newScript(source string) script {
	sum := sha1.Sum([]byte(source)) //nolint:gosec // see above
	return script{source: source, sha: hex.EncodeToString(sum[:])}
}

// decideScript is lua/*.lua joined behind what defines TIME and EPOCH, the hash with the epoch
// of the region's data; "" for none. What only uncommon checks need is in a function.
func decideScript(now, epoch string) script {
	now += "\nlocal EPOCH = '" + epoch + "'"
	return newScript(strings.Join([]string{
		now, baseLua, usageLua, quickLua,
		"local function general()", clockLua, logLua, windowLua, loansLua, generalLua, "end",
		decideLua,
	}, "\n"))
}

// appendCalls appends the EVALSHA arguments of some calls: number of keys, KEYS,
// ARGV as lua/decide.lua describes them. Equal plans are sent once. They point into
// calls, since a string in an interface would be an allocation each.
func appendCalls(args []any, nonce string, calls []store.Call, bound func(quota.Bound) quota.Bound) []any {
	count := len(args)
	args = append(args, nil)
	keys := 0
	key := func(k *string) {
		if keys++; keys == 1 { // a cluster client reads it to know the slot
			args = append(args, *k)
			return
		}
		args = append(args, k)
	}
	var array [192]byte
	for i := range calls {
		c := &calls[i]
		if c.Record != "" {
			key(&c.Record)
		}
		for n := range c.Keys {
			key(&c.Keys[n])
		}
		for n := range c.Counters {
			name := string(store.AppendCounterKey(array[:0], &c.Counters[n]))
			key(&name)
		}
		if c.Bounds != nil {
			n := 0
			for _, l := range c.Plan.Limits {
				if l.MaxOvershoot > 0 {
					name := string(store.AppendLoansKey(array[:0], &c.Counters[n]))
					key(&name)
				}
				if l.Scope == quota.ScopeGlobal {
					n++
				}
			}
		}
	}
	args[count] = keys
	args = append(args, nonce)
	plans := make([]*store.Call, 0, 8) // the first of each plan
	plan := func(c *store.Call) int {
		return slices.IndexFunc(plans, func(p *store.Call) bool { return p.Plan == c.Plan && slices.Equal(p.Bounds, c.Bounds) })
	}
	for i := range calls {
		if plan(&calls[i]) < 0 {
			plans = append(plans, &calls[i])
		}
	}
	args = append(args, len(plans))
	for _, p := range plans {
		args = appendBounds(append(args, p.Plan.Wire...), p, bound)
	}
	for i := range calls {
		args = appendCall(args, plan(&calls[i])+1, &calls[i])
	}
	return args
}

// appendBounds appends the bounds of a plan, as bound makes them.
func appendBounds(args []any, c *store.Call, bound func(quota.Bound) quota.Bound) []any {
	switch {
	case c.Plan.Bounded == 0:
		return args
	case c.Bounds == nil:
		return append(args, "")
	}
	n := 0
	for _, l := range c.Plan.Limits {
		if l.MaxOvershoot > 0 {
			b, terms := bound(c.Bounds[n]), loan.TermsOf(l.WindowUS())
			args = append(args, b.Share, fmt.Sprintf("%010d", b.Epoch), b.OpenFromUS, terms.Keep(), terms.Length)
			n++
		}
	}
	return args
}

func appendCall(args []any, plan int, c *store.Call) []any {
	if common(c) {
		args = append(args, plan)
	} else {
		args = append(args, -plan, opWire(c.Op))
		if c.Costs == nil {
			args = append(args, c.Cost, fingerprint(c))
		} else {
			args = append(args, "", fingerprint(c))
			for i := range c.Costs {
				args = append(args, &c.Costs[i])
			}
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
			args = append(args, "lend", o.Units, o.Request.From, loanID(o.Request.ID))
		case store.LoanAccept:
			g := &o.Grant
			args = append(args, "accept", g.From, loanID(g.ID), g.Units, g.New, g.Epoch, g.Time)
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

func opWire(op store.Op) any {
	switch op {
	case store.OpPeek:
		return "p"
	case store.OpReport:
		return "r"
	case store.OpLoans:
		return "l"
	default:
		return "c"
	}
}

var errReply = errors.New("unexpected reply of the decision script")

// parseReplies decodes the reply of decide.lua into verdicts. It refuses a reply
// whose nonce is another call's: the connection is out of step, and a decision
// about somebody else must never be used.
func parseReplies(reply any, nonce string, calls []store.Call, verdicts []store.Verdict) error {
	all, _ := reply.([]any)
	if len(all) == 0 {
		return fmt.Errorf("%w: it is %.40q", errReply, fmt.Sprint(reply))
	}
	head, _ := all[0].(string)
	got, timeText, _ := strings.Cut(head, " ")
	time, err := strconv.ParseInt(timeText, 10, 64)
	if got != nonce || err != nil || time <= 0 {
		return fmt.Errorf("%w: it begins with %.40q", errReply, head)
	}
	all = all[1:]
	for i := range calls {
		if len(all) == 0 {
			return fmt.Errorf("%w: %d replies for %d calls", errReply, i, len(calls))
		}
		n := 1
		if line, ok := all[0].(string); ok {
			err = parseVerdict(line, &calls[i], &verdicts[i])
		} else {
			n, err = takeAdmission(all, &calls[i], &verdicts[i])
		}
		if err != nil {
			return err
		}
		verdicts[i].StoreUS, all = time, all[n:]
	}
	if len(all) > 0 {
		return fmt.Errorf("%w: %d more than for %d calls", errReply, len(all), len(calls))
	}
	return nil
}

// takeAdmission reads an admission by quick in lua/quick.lua, and returns of how many parts it consists. The slice
// that v had for its limits is used again.
func takeAdmission(parts []any, c *store.Call, v *store.Verdict) (taken int, err error) {
	limits := c.Plan.Limits
	*v = store.Verdict{Outcome: store.Admitted, Limits: slices.Grow(v.Limits[:0], len(limits))[:len(limits)]}
	bad := !common(c)
	number := func() int64 {
		if taken == len(parts) {
			bad = true
			return 0
		}
		n, ok := parts[taken].(int64)
		taken++
		bad = bad || !ok || n < 0
		return n
	}
	for i, limit := range limits {
		v.Limits[i] = store.LimitVerdict{Remaining: number(), ResetUS: limit.WindowUS()}
		if limit.Scope != quota.ScopeGlobal {
			continue
		}
		ok := false
		if taken < len(parts) {
			v.Limits[i].Counter, ok = counterOf(parts[taken])
			taken++
		}
		bad = bad || !ok
		if limit.MaxOvershoot > 0 && c.Bounds != nil {
			v.Limits[i].Bounded = number()
		}
	}
	if bad {
		return taken, fmt.Errorf("%w: an admission of %.80q", errReply, fmt.Sprint(parts[:taken]...))
	}
	return taken, nil
}

// counterOf reads "generation bucket units".
func counterOf(part any) (c quota.Counter, ok bool) {
	rest, ok := part.(string)
	for _, field := range [...]*int64{&c.Generation, &c.Bucket, &c.Units} {
		var text string
		text, rest, _ = strings.Cut(rest, " ")
		n, err := strconv.ParseInt(text, 10, 64)
		*field, ok = n, ok && err == nil && n >= 0
	}
	return c, ok && rest == ""
}

// parseVerdict reads a line. The slice that v had for its limits is used again.
func parseVerdict(text string, c *store.Call, v *store.Verdict) error {
	*v = store.Verdict{Limits: v.Limits[:0]}
	if text == "" {
		return fmt.Errorf("%w: an empty verdict", errReply)
	}
	switch v.Outcome = text[0]; v.Outcome {
	case 'e':
		v.Outcome = 0
		v.Err = verdictError(strings.TrimPrefix(text[1:], " "))
		return nil
	case store.Reused:
		return nil
	case store.Replayed:
		parseReplay(text, c, v)
		return nil
	case store.Admitted, store.Denied, store.Lost:
		return parseLimits(text, len(c.Plan.Limits), func(i int) byte { return kindOf(c.Plan.Limits[i], c.Bounds != nil) }, v)
	case loansOutcome:
		v.Outcome = store.Admitted
		return parseLoans(text, c, v)
	}
	return fmt.Errorf("%w: %.40q", errReply, text)
}

// parseLimits reads the numbers of n limits. The kind of each says which it has.
func parseLimits(text string, n int, kind func(i int) byte, v *store.Verdict) error {
	v.Limits = slices.Grow(v.Limits, n)[:n]
	clear(v.Limits)
	rest := text[1:]
	for i := range v.Limits {
		l := &v.Limits[i]
		fields := [...]*int64{&l.Remaining, &l.WaitUS, &l.ResetUS, &l.Over, &l.Counter.Generation, &l.Counter.Bucket, &l.Counter.Units, &l.Bounded}
		from, to := 0, 3
		switch kind(i) {
		case 'g':
			to = 7
		case 'b':
			to = 8
		}
		if v.Outcome == store.Lost { // the counter alone
			from, to = min(4, to), min(to, 7)
		}
		for _, field := range fields[from:to] {
			if rest == "" || rest[0] != ' ' {
				return fmt.Errorf("%w: %.80q has too few numbers", errReply, text)
			}
			end := strings.IndexByte(rest[1:], ' ') + 1
			if end == 0 {
				end = len(rest)
			}
			n, err := strconv.ParseInt(rest[1:end], 10, 64)
			if err != nil || n < -1 {
				return fmt.Errorf("%w: %.80q", errReply, text)
			}
			*field, rest = n, rest[end:]
		}
		if l.Remaining < 0 || l.ResetUS < 0 || l.Over < 0 || l.Bounded < 0 || min(l.Counter.Generation, l.Counter.Bucket, l.Counter.Units) < 0 {
			return fmt.Errorf("%w: %.80q", errReply, text)
		}
	}
	if rest != "" {
		return fmt.Errorf("%w: %.80q has too many numbers", errReply, text)
	}
	return nil
}

// loansOutcome begins the reply to operations on loans.
const loansOutcome = 'o'

// parseLoans reads the reply of run in lua/loans.lua.
func parseLoans(text string, c *store.Call, v *store.Verdict) error {
	words, bad := strings.Fields(text[1:]), false
	next := func() string {
		if len(words) == 0 {
			bad = true
			return ""
		}
		word := words[0]
		words = words[1:]
		return word
	}
	number := func() int64 {
		n, err := strconv.ParseInt(next(), 10, 64)
		bad = bad || err != nil || n < 0
		return n
	}
	id := func() loan.ID { return loan.ID{Epoch: uint32(number()), Stamp: number()} }
	of := func() (l []loan.Loan) {
		for range number() {
			if bad {
				return nil
			}
			l = append(l, loan.Loan{Peer: next(), ID: id(), Units: number(), Back: number(), Until: number()})
		}
		slices.SortFunc(l, loan.Compare)
		return l
	}
	v.Loans = &store.Loans{Used: number(), Results: make([]store.LoanResult, len(c.Loans))}
	v.Loans.State = loan.State{Epoch: c.Bounds[0].Epoch, Recall: number(), RecallUntil: number(), Lent: of(), Held: of()}
	for i := range c.Loans {
		o, r := &c.Loans[i], &v.Loans.Results[i]
		switch o.Kind {
		case store.LoanLend:
			g := loan.Grant{ID: id(), Units: number(), New: number() == 1, Epoch: o.Request.Epoch, Time: o.Request.Time}
			if g.ID != (loan.ID{}) {
				r.Grant = g
			}
		case store.LoanAccept:
			r.Changed = number() == 1
		case store.LoanReturn:
			r.Back = number()
		default:
			next()
		}
	}
	if bad || len(words) > 0 {
		return fmt.Errorf("%w: %.80q", errReply, text)
	}
	return nil
}

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
	switch code, _, _ := strings.Cut(rest, " "); code {
	case "OOM", "READONLY", "MISCONF", "NOREPLICAS", "NOPERM", "LOADING", "CLUSTERDOWN", "MASTERDOWN":
		return &store.Error{Reason: quota.ReasonRedisRefused, Err: errors.New(text)}
	}
	return fmt.Errorf("%w: %s", store.ErrPartition, text)
}
