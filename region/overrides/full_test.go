package overrides

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/regiond/regiond/quota"
)

// invented is an override as a holder of the key may invent it, of a tenant that has none.
func invented(i int) *quota.Override {
	o := l(fmt.Sprint("invented-", i), 7)
	o.Version = quota.OverrideVersion{Counter: 1, WallUS: nowUS, Region: "us"}
	return &o
}

// TestFull: a region without room takes nothing in that other regions invent, keeps what it has, logs one line a minute and asks no
// faster; overrides that it knows can still be changed, until those have filled what is left for them.
func TestFull(t *testing.T) {
	s := newStore()
	p := alone(t, s, nowUS)
	p.loaded.Store(true)
	var log bytes.Buffer
	p.o.Logger = slog.New(slog.NewTextHandler(&log, nil))
	asked := 0
	now := time.UnixMicro(nowUS)
	p.o.Now = func() time.Time { return now }
	none := func() []quota.Process { return nil }
	p.Connect(Peers{Live: none, Regions: func() []string { return nil }, Send: func(payload []byte) bool {
		if strings.HasPrefix(string(payload), "d ") {
			asked++
		}
		return true
	}})
	from := quota.Process{Region: "us"}
	send := func(all ...*quota.Override) {
		var b strings.Builder
		for _, o := range all {
			b.WriteString(overrideLine(o.Tenant, o.Text()))
		}
		p.handle(t.Context(), received{from, []byte(b.String())})
	}
	known := invented(0)
	if send(known, invented(1)); p.Size() != 2 || s.count() != 2 {
		t.Fatalf("with room %d are known, and %d kept", p.Size(), s.count())
	}

	p.table.bytes.Store(newBytes)
	var flood []*quota.Override
	for i := range 1000 {
		flood = append(flood, invented(100+i))
	}
	send(flood...)
	raised := *known
	raised.Version, raised.Limits = raised.Version.Next(nowUS, "us"), []quota.OverrideLimit{{Name: "l", Units: 9}}
	send(&raised)
	if p.Size() != 2 || s.count() != 2 || p.table.get(known.Tenant).Describe() != "l 9" {
		t.Errorf("without room %d are known, %d kept, and what was known is %s", p.Size(), s.count(), p.table.get(known.Tenant).Describe())
	}
	if lines := strings.Count(log.String(), "no room"); lines != 1 {
		t.Errorf("%d lines:\n%s", lines, log.String())
	}
	var wrong *quota.Invalid
	if _, err := p.Edit(t.Context(), quota.Edit{Override: l("new", 1)}); !errors.As(err, &wrong) || !strings.Contains(wrong.Error(), "no room") {
		t.Errorf("an edit of another tenant: %v", err)
	}
	if _, err := p.Edit(t.Context(), quota.Edit{Override: l(known.Tenant, 11)}); err != nil {
		t.Errorf("an edit of a known one: %v", err)
	}
	for range 120 {
		now = now.Add(time.Second)
		p.ask(from, "another root")
	}
	if asked < 2 || asked > 3 {
		t.Errorf("it asked %d times in two minutes", asked)
	}

	p.table.bytes.Store(maxBytes)
	next := *p.table.get(known.Tenant)
	next.Version, next.Limits = next.Version.Next(nowUS, "us"), append(next.Limits, quota.OverrideLimit{Name: "m", Units: 1})
	if err := p.mergeOne(t.Context(), "us", &next); !errors.Is(err, errFull) {
		t.Errorf("what is known grows on: %v", err)
	}
}

// TestFullWhileLoading: how much there is to be loaded is not known, so another region adds nothing meanwhile.
func TestFullWhileLoading(t *testing.T) {
	s := newStore()
	p := alone(t, s, nowUS)
	p.loaded.Store(false)
	if a := (&arrival{Override: invented(1), text: invented(1).Text()}); p.merge(t.Context(), quota.Process{}, []*arrival{a}) || s.count() != 0 {
		t.Errorf("it was taken in: %v", a.err)
	}
}

// TestBytes: what a table counts is what it holds, whatever comes and goes, with each word once.
func TestBytes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var v table
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			o := l(rapid.StringMatching(`[a-c]{1,2}`).Draw(t, "tenant"), rapid.Int64Range(0, 1<<40).Draw(t, "units"))
			o.Limits[0].Name = rapid.StringMatching(`[a-z]{1,3}`).Draw(t, "limit")
			o.Version = quota.OverrideVersion{Counter: rapid.Int64Range(1, 9).Draw(t, "counter"), Region: "eu"}
			if known := v.get(o.Tenant); known != nil && rapid.Bool().Draw(t, "forget") {
				v.forget(known)
			} else {
				v.fold(&o)
			}
		}
		want, used := int64(0), map[string]bool{}
		for slice := range sliceCount {
			for _, o := range v.of(slice) {
				packed, _ := v.slices[slice].find(o.Tenant)
				want += entryBytes + int64(len(packed))
				used[o.Version.Region], used[o.Policy], used[o.Limits[0].Name] = true, true, true
			}
		}
		for text := range used {
			want += wordBytes + 2*int64(len(text))
		}
		if len(v.ids) != len(used) || len(v.words) != len(used)+len(v.free) {
			t.Fatalf("%d words are used, and %d known", len(used), len(v.ids))
		}
		if got := v.bytes.Load(); got != want {
			t.Fatalf("it counts %d bytes, and holds %d", got, want)
		}
	})
}

// TestInventedNames: names of limits that a holder of the key invents take room for as long as an override has them.
func TestInventedNames(t *testing.T) {
	p := alone(t, newStore(), nowUS)
	o, before := l("a", 1), int64(0)
	for i := range 100_000 {
		o.Version = quota.OverrideVersion{Counter: int64(i + 1), WallUS: nowUS, Region: "us"}
		o.Limits = []quota.OverrideLimit{{Name: fmt.Sprintf("invented-%06d", i), Units: 1}}
		if err := p.mergeOne(t.Context(), "us", &o); err != nil {
			t.Fatal(err)
		}
		if i == 0 {
			before = p.table.bytes.Load()
		}
	}
	if more := p.table.bytes.Load() - before; more > 10 || len(p.table.words) > 10 || p.table.get("a").Describe() != "invented-099999 1" {
		t.Errorf("100,000 edits of one override take %d bytes more, and %d words: %s", more, len(p.table.words), p.table.get("a").Describe())
	}
	p.table.forget(&o)
	if n := p.table.bytes.Load(); n != 0 || len(p.table.ids) != 0 {
		t.Errorf("without overrides it counts %d bytes and %d words", n, len(p.table.ids))
	}
	var one table
	gold := invented(0)
	gold.Policy = "gold"
	one.fold(gold)
	if !one.shrinks(gold, &quota.Override{Tenant: gold.Tenant, Version: gold.Version, Deleted: true}) {
		t.Error("a deletion takes room where all overrides have a policy")
	}
}

// TestLostIsWrittenAgain: once one slice shows that Redis has lost data, all others are compared at once and not in minutes.
func TestLostIsWrittenAgain(t *testing.T) {
	s := newStore()
	p := alone(t, s, nowUS)
	for i := range 1000 {
		p.table.fold(invented(i))
	}
	p.loaded.Store(true)
	p.at = 0
	for range 3 {
		p.step(t.Context())
	}
	if s.count() != 1000 {
		t.Errorf("%d of 1000 are kept", s.count())
	}
}

// TestAnswersGoOn: what does not fit into the answers of a second is in the next ones, also of a slice that is larger than all of them,
// and nothing comes twice before all has come once.
func TestAnswersGoOn(t *testing.T) {
	p := alone(t, newStore(), nowUS)
	p.loaded.Store(true)
	sent, lines := map[string]int{}, 0
	p.Connect(Peers{Send: func(payload []byte) bool {
		for line := range strings.Lines(string(payload)) {
			sent[strings.Fields(line)[1]]++
			lines++
		}
		return true
	}})
	const all = 600
	for i := range all {
		p.table.fold(invented(i))
	}
	other := p.table.digests(p.o.TimeUS())
	for i := range other {
		other[i]++
	}
	for answers := 0; len(sent) < all; answers++ {
		p.budget, p.budgetAt = 60, p.o.Now() // of one or two
		p.answer(t.Context(), &other)
		for tenant, n := range sent {
			if n > 1 {
				t.Fatalf("%s came %d times when %d of %d had come", tenant, n, len(sent), all)
			}
		}
		if p.answer(t.Context(), &other); lines > 2*(answers+1) || answers > all {
			t.Fatalf("%d of %d came in %d answers of two at most", lines, all, answers+1)
		}
	}
}

func eachFifthScanFails(s keeper) keeper {
	var scans atomic.Int64
	return &faulty{s, fail("scan", func() bool { return scans.Add(1)%5 == 0 })}
}

// TestLoadedIsAll: a process says that it has loaded all once it has, whatever failed meanwhile.
func TestLoadedIsAll(t *testing.T) {
	s := newStore()
	p := alone(t, s, nowUS)
	p.keeper = eachFifthScanFails(s)
	p.loaded.Store(false)
	for i := range 1000 {
		o := invented(i)
		s.texts[sliceOf(o.Tenant)][o.Tenant] = o.Text()
	}
	for steps := 0; !p.loaded.Load(); steps++ {
		if p.step(t.Context()); steps > 10*sliceCount {
			t.Fatal("it never loads")
		}
	}
	if p.Size() != 1000 {
		t.Errorf("%d of 1000 are loaded", p.Size())
	}
}
