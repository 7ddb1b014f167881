package limitertest

import (
	"context"
	_ "embed"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/regiond/regiond/limiter/store"
	"github.com/regiond/regiond/quota"
)

//go:embed ledgers.txt
var ledgersText string

// ledger is a sequence of calls and answers written by hand; ledgers.txt says how.
type ledger struct {
	name   string
	limits map[string][]*quota.Limit // by set, "" is the first
	lines  []string                  // of calls
}

// ledgers reads all of ledgers.txt.
func ledgers(t *testing.T) []*ledger {
	t.Helper()
	var all []*ledger
	for text := range strings.Lines(ledgersText) {
		text, _, _ = strings.Cut(text, "//")
		text = strings.TrimSpace(text)
		if name, ok := strings.CutPrefix(text, "== "); ok {
			all = append(all, &ledger{name: name, limits: map[string][]*quota.Limit{}})
			continue
		}
		if text == "" {
			continue
		}
		l := all[len(all)-1]
		if words := strings.Fields(text); words[0] == "limit" {
			set, limit := parseLimit(t, words[1:])
			l.limits[set] = append(l.limits[set], limit)
			continue
		}
		l.lines = append(l.lines, text)
	}
	return all
}

// parseLimit reads the words after "limit".
func parseLimit(t *testing.T, words []string) (set string, l *quota.Limit) {
	t.Helper()
	if name, ok := strings.CutPrefix(words[0], "~"); ok {
		set, words = name, words[1:]
	}
	if len(words) < 5 || words[3] != "per" {
		t.Fatalf("a limit has a name, an algorithm, units and a window: %q", words)
	}
	if words[1] == "calendar" {
		l = calendarLimit(words[0], number(t, words[2]), words[4], 0)
	} else {
		l = &quota.Limit{Name: words[0], Units: number(t, words[2]), Window: time.Duration(number(t, words[4])) * time.Microsecond}
		if words[1] == "concurrent" {
			l.Algorithm = quota.Concurrent
		} else if err := l.Algorithm.UnmarshalText([]byte(words[1])); err != nil {
			t.Fatal(err)
		}
	}
	for _, w := range words[5:] {
		switch name, value, _ := strings.Cut(w, "="); name {
		case "burst":
			l.Burst = number(t, value)
		case "global":
			l.Scope = quota.ScopeGlobal
		case "offset":
			l = calendarLimit(l.Name, l.Units, words[4], number(t, value))
		case "by":
			l.By = []string{value}
		case "tokens":
			l.Counts = quota.CountsTokens
		default:
			t.Fatalf("%q means nothing: %q", w, words)
		}
	}
	return set, l
}

// calendarLimit counts by a unit of a calendar. All zones have one name, as if they were versions of its data: their clocks are
// ahead of UTC by so many seconds.
func calendarLimit(name string, units int64, unit string, offset int64) *quota.Limit {
	c := &quota.Calendar{Anchor: 1, Zone: time.FixedZone("Here/There", int(offset))}
	if err := c.Unit.UnmarshalText([]byte(unit)); err != nil {
		panic(err)
	}
	return &quota.Limit{Name: name, Units: units, Algorithm: quota.CalendarPeriods, Calendar: c, Window: c.Unit.Window()}
}

func (l *ledger) run(t *testing.T, newStore New) {
	s, now := newStore(t)
	p, questions := newPair(s, now, "acme"), map[string]*Question{}
	for name, limits := range l.limits {
		questions[name] = p.reference.ask(limits...)
		if asked := rates(limits); len(asked) < len(limits) {
			questions[plain+name] = p.reference.ask(asked...)
		}
	}
	var batch []line
	for _, text := range l.lines {
		ln := parseLine(t, text, questions)
		if !ln.joins {
			p.settle(t, batch)
			batch = nil
		}
		batch = append(batch, ln)
	}
	p.settle(t, batch)
}

// settle has the store and the reference decide a batch of lines.
func (p *pair) settle(t *testing.T, batch []line) {
	if len(batch) == 0 {
		return
	}
	p.us = Epoch + batch[0].us
	p.now()
	var calls []store.Call
	for i := range batch {
		if batch[i].op == 'd' {
			p.reset(t, batch[i].cost)
			return
		}
		calls = append(calls, batch[i].call)
	}
	judged := decide(p.reference, calls...)
	for i, v := range decide(p.store, calls...) {
		ln, q := &batch[i], batch[i].question
		if got, oracle := q.Text(&v), q.Text(&judged[i]); got != ln.want || oracle != ln.want {
			t.Errorf("%s\ngot    %s\noracle %s", ln.text, got, oracle)
		}
		if got, oracle := q.Shared(&v), q.Shared(&judged[i]); got != oracle || v.StoreUS != p.us {
			t.Errorf("%s\nshared %s at %d\noracle %s", ln.text, got, v.StoreUS-Epoch, oracle)
		}
	}
}

// reset forgets the tenant, and its usage counters of generations up to a time after Epoch; 0: none.
func (p *pair) reset(t *testing.T, upTo int64) {
	t.Helper()
	if upTo != 0 {
		upTo += Epoch
	}
	if err := p.store.ResetAll(context.Background(), p.tenant, upTo); err != nil {
		t.Fatal(err)
	}
	p.reference.region.Forget(string(store.AppendPrefix(nil, p.tenant)), p.tenant, upTo)
}

// plain is before the name of a set of limits of which checks are not asked about the concurrent ones.
const plain = "plain "

type line struct {
	text     string
	us       int64
	op       store.Op
	cost     int64
	joins    bool // the batch of the line before
	question *Question
	call     store.Call
	want     string
}

func parseLine(t *testing.T, text string, questions map[string]*Question) line {
	t.Helper()
	left, want, _ := strings.Cut(text, " = ")
	words := strings.Fields(left)
	if len(words) < 3 {
		t.Fatalf("a line has a time, an op, a cost and a verdict: %s", text)
	}
	ln := line{text: text, joins: words[0] == "+", want: strings.Join(strings.Fields(want), " "), op: store.Op(words[1][0]), cost: number(t, words[2])}
	if !ln.joins {
		ln.us = number(t, words[0])
	}
	var ceilings []int64
	set, record, mark, hold := "", "", "", store.Hold{KeepUS: holdKeepUS, GoneUS: Epoch + 2*holdKeepUS}
	for _, w := range words[3:] {
		switch w[0] {
		case '!':
			id, ttl, _ := strings.Cut(w[1:], "/")
			hold.ID = number(t, id)
			if ttl != "" {
				hold.TTLUS = number(t, ttl)
			}
		case '@':
			for c := range strings.SplitSeq(w[1:], ",") {
				ceilings = append(ceilings, number(t, c))
			}
		case '#':
			record, mark, _ = strings.Cut(w[1:], "=")
		case '~':
			set = w[1:]
		default:
			t.Fatalf("%q means nothing: %s", w, text)
		}
	}
	if ln.question = questions[set]; !ln.op.OfReservation() && questions[plain+set] != nil {
		ln.question = questions[plain+set]
	}
	ln.call = ln.question.Call("acme", ln.op, ln.cost, ceilings)
	if ln.op.OfReservation() {
		ln.call.Hold = hold
	}
	if record != "" {
		ln.call.Record, ln.call.Print = "rl:{acme}:i:"+record, mark
	}
	return ln
}

func number(t *testing.T, s string) int64 {
	t.Helper()
	n, err := strconv.ParseInt(strings.ReplaceAll(s, "_", ""), 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func rule(name string, a quota.Algorithm, units, us int64) *quota.Limit {
	return &quota.Limit{Name: name, Algorithm: a, Units: units, Window: time.Duration(us) * time.Microsecond}
}
