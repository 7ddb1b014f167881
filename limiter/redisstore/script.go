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
)

var (
	//go:embed lua/now.lua
	nowLua string
	//go:embed lua/base.lua
	baseLua string
	//go:embed lua/usage_counters.lua
	usageLua string
	//go:embed lua/log.lua
	logLua string
	//go:embed lua/window_gcra.lua
	windowLua string
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

// decideScript is lua/*.lua joined behind what defines TIME.
func decideScript(now string) script {
	return newScript(strings.Join([]string{now, baseLua, usageLua, logLua, windowLua, decideLua}, "\n"))
}

// appendCalls appends the EVALSHA arguments of some calls: number of keys, KEYS,
// ARGV as lua/decide.lua describes them. Equal plans are sent once. They point into
// calls, since a string in an interface would be an allocation each.
func appendCalls(args []any, nonce string, calls []store.Call) []any {
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
	}
	args[count] = keys
	args = append(args, nonce)
	plans := make([]*store.KeyPlan, 0, 8)
	for i := range calls {
		if !slices.Contains(plans, calls[i].Plan) {
			plans = append(plans, calls[i].Plan)
		}
	}
	args = append(args, len(plans))
	for _, s := range plans {
		args = append(args, s.Wire...)
	}
	for i := range calls {
		args = appendCall(args, slices.Index(plans, calls[i].Plan)+1, &calls[i])
	}
	return args
}

func appendCall(args []any, plan int, c *store.Call) []any {
	args = append(args, plan, opWire(c.Op), c.Cost, &c.Print)
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
	return args
}

func opWire(op store.Op) any {
	switch op {
	case store.OpPeek:
		return "p"
	case store.OpReport:
		return "r"
	default:
		return "c"
	}
}

var errReply = errors.New("unexpected reply of the decision script")

// parseReplies decodes the reply of decide.lua into verdicts. It refuses a reply
// whose nonce is another call's: the connection is out of step, and a decision
// about somebody else must never be used.
func parseReplies(reply any, nonce string, calls []store.Call, verdicts []store.Verdict) error {
	text, _ := reply.(string)
	head, rest, _ := strings.Cut(text, "\n")
	got, timeText, _ := strings.Cut(head, " ")
	time, err := strconv.ParseInt(timeText, 10, 64)
	if got != nonce || err != nil || time <= 0 {
		return fmt.Errorf("%w: it begins with %.40q", errReply, head)
	}
	if lines := strings.Count(text, "\n"); lines != len(calls) {
		return fmt.Errorf("%w: %d replies for %d calls", errReply, lines, len(calls))
	}
	for i := range calls {
		var line string
		line, rest, _ = strings.Cut(rest, "\n")
		if err := parseVerdict(line, calls[i].Plan, &verdicts[i]); err != nil {
			return err
		}
		verdicts[i].StoreUS = time
	}
	return nil
}

// parseVerdict reads a line. The slice that v had for its limits is used again.
func parseVerdict(text string, plan *store.KeyPlan, v *store.Verdict) error {
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
	case store.Admitted, store.Denied, store.Replayed, store.Lost:
		return parseLimits(text, plan, v)
	}
	return fmt.Errorf("%w: %.40q", errReply, text)
}

func parseLimits(text string, plan *store.KeyPlan, v *store.Verdict) error {
	v.Limits = slices.Grow(v.Limits, len(plan.Limits))[:len(plan.Limits)]
	clear(v.Limits)
	rest := text[1:]
	for i := range v.Limits {
		l := &v.Limits[i]
		fields := [...]*int64{&l.Remaining, &l.WaitUS, &l.ResetUS, &l.Over, &l.Counter.Generation, &l.Counter.Bucket, &l.Counter.Units}
		from, to := 0, len(fields)
		if v.Outcome == store.Lost { // the counter alone
			from = 4
		}
		if plan.Limits[i].Scope != quota.ScopeGlobal {
			to = 3
		}
		for _, field := range fields[min(from, to):to] {
			if rest == "" && v.Outcome == store.Replayed {
				return nil // the record is older than this limit
			}
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
		if l.Remaining < 0 || l.ResetUS < 0 || l.Over < 0 || min(l.Counter.Generation, l.Counter.Bucket, l.Counter.Units) < 0 {
			return fmt.Errorf("%w: %.80q", errReply, text)
		}
	}
	if rest != "" && v.Outcome != store.Replayed { // a record may contain limits removed since
		return fmt.Errorf("%w: %.80q has too many numbers", errReply, text)
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
	switch code, _, _ := strings.Cut(strings.TrimPrefix(rest, "-"), " "); code {
	case "OOM", "READONLY", "MISCONF", "NOREPLICAS", "NOPERM", "LOADING", "CLUSTERDOWN", "MASTERDOWN":
		return &store.Error{Reason: quota.ReasonRedisRefused, Err: errors.New(text)}
	}
	return fmt.Errorf("%w: %s", store.ErrPartition, text)
}
