package limitertest

import (
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/regiond/regiond/limiter"
	"github.com/regiond/regiond/quota"
)

// ledger is a story told to a store, one line for each call:
//
//	time  op  cost  [@ceiling,ceiling]  [#key=print]  [~limits]  =  outcome  remaining wait reset | …
//
// Times are µs after Epoch, op is c, p or r. "+" in the place of the time puts
// the call into the batch of the line before. "~" names the set of limits, the
// first when it is left out. "#" gives an idempotency key and its fingerprint.
type ledger struct {
	name   string
	limits map[string][]*quota.Limit // "" is the first set
	lines  string
}

func (l ledger) run(t *testing.T, newStore New) {
	store, now := newStore(t)
	questions := map[string]*Question{}
	for name, limits := range l.limits {
		questions[name] = Ask(limits...)
	}
	reference := NewReference(slices.Collect(maps.Values(questions))...) // who has to know better than to differ
	var batch []line
	settle := func() {
		if len(batch) == 0 {
			return
		}
		now(Epoch + batch[0].us)
		reference.Now(Epoch + batch[0].us)
		var calls []limiter.Call
		for i := range batch {
			calls = append(calls, batch[i].call)
		}
		judged := decide(t, reference, calls...)
		for i, v := range decide(t, store, calls...) {
			if got := batch[i].question.Text(&v); got != batch[i].want {
				t.Errorf("%s\ngot    %s", batch[i].text, got)
			}
			if got := batch[i].question.Text(&judged[i]); got != batch[i].want {
				t.Errorf("%s\noracle %s", batch[i].text, got)
			}
			if got, want := batch[i].question.Shared(&v), batch[i].question.Shared(&judged[i]); got != want {
				t.Errorf("%s\ntold   %s\noracle %s", batch[i].text, got, want)
			}
			if v.StoreUS != Epoch+batch[0].us {
				t.Errorf("%s\nstore time %d", batch[i].text, v.StoreUS-Epoch)
			}
		}
		batch = nil
	}
	for text := range strings.Lines(l.lines) {
		text, _, _ = strings.Cut(strings.TrimSpace(text), "//")
		if text == "" {
			continue
		}
		ln := parseLine(t, text, questions)
		if !ln.joins {
			settle()
		}
		batch = append(batch, ln)
	}
	settle()
}

type line struct {
	text     string
	us       int64
	joins    bool // the batch of the line before
	question *Question
	call     limiter.Call
	want     string
}

func parseLine(t *testing.T, text string, questions map[string]*Question) line {
	t.Helper()
	left, want, ok := strings.Cut(text, " = ")
	words := strings.Fields(left)
	if !ok || len(words) < 3 {
		t.Fatalf("a line has a time, an op, a cost and a verdict: %s", text)
	}
	ln := line{text: text, joins: words[0] == "+", want: strings.Join(strings.Fields(want), " ")}
	if !ln.joins {
		ln.us = number(t, words[0])
	}
	var ceilings []int64
	set, record, mark := "", "", ""
	for _, w := range words[3:] {
		switch w[0] {
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
	ln.question = questions[set]
	ln.call = ln.question.Call("acme", limiter.Op(words[1][0]), number(t, words[2]), ceilings)
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

// one is the only set of limits of a ledger.
func one(limits ...*quota.Limit) map[string][]*quota.Limit {
	return map[string][]*quota.Limit{"": limits}
}

func rule(name string, a quota.Algorithm, units, us int64) *quota.Limit {
	return &quota.Limit{Name: name, Algorithm: a, Units: units, Window: time.Duration(us) * time.Microsecond}
}

func logOf(units, us int64) *quota.Limit    { return rule("log", quota.SlidingLog, units, us) }
func windowOf(units, us int64) *quota.Limit { return rule("window", quota.SlidingWindow, units, us) }

func gcraOf(units, us, burst int64) *quota.Limit {
	l := rule("gcra", quota.GCRA, units, us)
	l.Burst = burst
	return l
}

// global makes a limit one whose ceiling comes with each call.
func global(l *quota.Limit) *quota.Limit {
	l.Scope = quota.ScopeGlobal
	return l
}
