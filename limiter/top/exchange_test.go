package top

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/klauspost/compress/s2"
	"pgregory.net/rapid"

	"github.com/regiond/regiond/quota"
)

// cluster is a few processes whose messages arrive when the test says so.
type cluster struct {
	all   []*Exchange
	exact []map[quota.TopRow]int64 // of each, as it was when its message was sent
	alone string
}

func process(region string, n int) quota.Process {
	return quota.Process{Region: region, Instance: fmt.Sprintf("i%d", n), Boot: int64(n + 1)}
}

func newCluster(t testing.TB, regions ...string) *cluster {
	t.Helper()
	c := &cluster{}
	for i, region := range regions {
		c.exact = append(c.exact, map[quota.TopRow]int64{})
		c.all = append(c.all, NewExchange(ExchangeOptions{
			Recorder: newRecorder(t, nil), Self: process(region, i),
			Regions: func() []string { return slices.Compact(slices.Sorted(slices.Values(regions))) },
			Live: func() (live []quota.Process) {
				for n, r := range regions {
					if n != i {
						live = append(live, process(r, n))
					}
				}
				return live
			},
			Alone: func() string { return c.alone },
			Send: func(m []byte) {
				for n, x := range c.all {
					if n != i {
						if err := x.Receive(process(region, i), m); err != nil {
							t.Error(err)
						}
					}
				}
			},
		}))
	}
	return c
}

func (c *cluster) deny(i int, tenant string, units int64) {
	key := keyOf(tenant)
	if units%2 == 0 { // under the algorithm of before a reload
		key = strings.Replace(key, ":l:", ":w.burst:", 1)
	}
	c.all[i].Recorder.Record(Event{Key: key, Limits: limits, Which: 1, Units: units})
	c.exact[i][quota.TopRow{Tenant: tenant, Policy: "standard", Limit: "burst", Partition: "user:2.42:"}] += units
}

// TestExchange: the sums over processes of more names than a message has contain the truth.
func TestExchange(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(r *rapid.T) {
		c := newCluster(t, "eu", "eu", "us")
		for i := range c.all {
			random := rand.New(rand.NewPCG(rapid.Uint64().Draw(r, "seed"), 1)) // many draws are slow
			for range rapid.IntRange(0, 200).Draw(r, "events") {
				c.deny(i, fmt.Sprintf("t%d", random.IntN(250)), 1+random.Int64N(9))
			}
		}
		for _, x := range c.all {
			x.Send(x.message())
		}
		for i, x := range c.all {
			for _, scope := range []quota.Scope{quota.ScopeRegion, quota.ScopeGlobal} {
				exact := map[quota.TopRow]int64{}
				for n := range c.all {
					if scope == quota.ScopeGlobal || c.all[n].Self.Region == x.Self.Region {
						for name, units := range c.exact[n] {
							exact[name] += units
						}
					}
				}
				v := x.Report(quota.TopQuery{Window: time.Hour, Scope: scope, Rows: quota.MaxTopRows})
				if err := contain(list{rows: v.Rows, others: v.OthersAtMost, total: v.Total}, exact); err != nil {
					r.Fatalf("process %d, %v: %v", i, scope, err)
				}
			}
		}
	})
}

// TestExchangeForgets: what a process sent counts for 16 s, and one that sent nothing is missing.
func TestExchangeForgets(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, "eu", "us", "us")
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- c.all[1].Run(ctx) }()
		c.deny(1, "acme", 5)
		state := func() string {
			v := c.all[0].Report(quota.TopQuery{Window: time.Minute, Scope: quota.ScopeGlobal, Rows: 9})
			return fmt.Sprint(v.Regions, v.Absent, v.Processes, v.BehindMS, len(v.Rows), v.Notes)
		}
		if got := state(); got != "[eu] [us] 1 0 0 [Processes that have not sent their counts in the last 16s: 2.]" {
			t.Error(got)
		}
		time.Sleep(ShareEvery + time.Second)
		synctest.Wait()
		if got := state(); got != "[eu us] [] 2 1000 1 [Processes that have not sent their counts in the last 16s: 1.]" {
			t.Error(got)
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		time.Sleep(forgetAfter - time.Second)
		if got := state(); !strings.HasPrefix(got, "[eu us] [] 2 16000 1") {
			t.Error(got)
		}
		time.Sleep(time.Nanosecond)
		if got := state(); !strings.HasPrefix(got, "[eu] [us] 1 0 0") {
			t.Error(got)
		}
		c.alone = "reasons"
		if err := c.all[0].Receive(process("us", 1), c.all[1].message()); err != nil {
			t.Error(err)
		}
		if got := state(); got != "[eu] [us] 1 0 0 [Only what this process counted: reasons.]" {
			t.Error(got)
		}
	})
}

// TestExchangeAlone: from the reload on that removes a region its processes are not ranked, and from that on that turns
// share_top off only what this process counted; what others sent before does not come back.
func TestExchangeAlone(t *testing.T) {
	t.Parallel()
	c := newCluster(t, "eu", "eu", "us")
	for i := range c.all {
		c.deny(i, fmt.Sprintf("t%d", i), 5)
		c.all[i].Send(c.all[i].message())
	}
	query := quota.TopQuery{Window: time.Minute, Scope: quota.ScopeGlobal, Rows: 9}
	if v := c.all[0].Report(query); v.Processes != 3 || len(v.Rows) != 3 {
		t.Fatalf("%+v", v)
	}
	all := c.all[0].Regions
	c.all[0].Regions = func() []string { return []string{"eu"} } // a reload has removed the other
	if v := c.all[0].Report(query); v.Processes != 2 || len(v.Rows) != 2 || fmt.Sprint(v.Regions, v.Absent) != "[eu] []" {
		t.Errorf("without the region it ranks %+v", v)
	}
	c.all[0].Regions = all
	c.alone = "reasons"
	if v := c.all[0].Report(query); v.Processes != 1 || len(v.Rows) != 1 || v.Rows[0].Tenant != "t0" || v.Total != 5 {
		t.Errorf("alone it ranks %+v", v)
	}
	c.alone = ""
	if v := c.all[0].Report(query); v.Processes != 1 {
		t.Errorf("what others sent before counts again: %+v", v)
	}
}

// TestMessageFits: with the longest names a message has fewer rows, and still what bounds all others.
func TestMessageFits(t *testing.T) {
	t.Parallel()
	c := newCluster(t, "eu", "us")
	long, exact := strings.Repeat("x", quota.MaxID-3), map[quota.TopRow]int64{}
	for i := range 80 {
		tenant := fmt.Sprintf("%s%03d", long, i)
		for _, by := range kinds {
			c.all[0].Recorder.Record(Event{Key: "rl:{" + tenant + "}:l:standard:user:253." + long + ":", Limits: limits, Which: 1, Units: int64(i + 1), By: by})
		}
		exact[quota.TopRow{Tenant: tenant, Policy: "standard", Limit: "burst", Partition: "user:253." + long + ":"}] = int64(i + 1)
	}
	m := c.all[0].message()
	if n, err := s2.DecodedLen(m); err != nil || n > maxShared {
		t.Fatalf("%d bytes, %v", n, err)
	}
	c.all[0].Send(m)
	v := c.all[1].Report(quota.TopQuery{Window: time.Minute, Scope: quota.ScopeGlobal, Rows: quota.MaxTopRows})
	if err := contain(list{rows: v.Rows, others: v.OthersAtMost, total: v.Total}, exact); err != nil || len(v.Rows) < 20 || len(v.Rows) == len(exact) {
		t.Errorf("%d rows, others at most %d: %v", len(v.Rows), v.OthersAtMost, err)
	}
}

// hostile are messages that are refused, and why.
func hostile() map[string][]byte {
	lists := func(change func(m message)) []byte {
		var m message
		for range 4 {
			m = append(m, messageList{Names: []string{"acme standard burst ::"}, Least: []int64{1}, Most: []int64{2}, Others: 1, Total: 3, CoversMS: 60_000})
		}
		change(m)
		text, _ := json.Marshal(m)
		return s2.Encode(nil, text)
	}
	list := func(change func(l *messageList)) []byte { return lists(func(m message) { change(&m[2]) }) }
	name := func(text string) []byte { return list(func(l *messageList) { l.Names[0] = text }) }
	return map[string][]byte{
		"nothing": nil, "no s2": []byte("{}"), "no JSON": s2.Encode(nil, []byte("{")), "no lists": s2.Encode(nil, []byte("[]")), "null": s2.Encode(nil, []byte("null")),
		"null lists": s2.Encode(nil, []byte("[null,null,null,null]")), "five lists": s2.Encode(nil, []byte("[{},{},{},{},{}]")),
		"huge":           s2.Encode(nil, bytes.Repeat([]byte(" "), maxShared+1)),
		"claims":         {0xff, 0xff, 0xff, 0xff, 0x0f, 0},
		"negative":       list(func(l *messageList) { l.Least[0] = -1 }),
		"more than most": list(func(l *messageList) { l.Least[0] = 3 }),
		"too many units": list(func(l *messageList) { l.Most[0] = most + 1 }),
		"others":         list(func(l *messageList) { l.Others = most + 1 }),
		"others below 0": list(func(l *messageList) { l.Others = -1 }),
		"total":          list(func(l *messageList) { l.Total = most + 1 }),
		"total below 0":  list(func(l *messageList) { l.Total = -1 }),
		"too long":       list(func(l *messageList) { l.CoversMS = 3 * 3_600_000 }),
		"time below 0":   list(func(l *messageList) { l.CoversMS = -1 }),
		"columns":        list(func(l *messageList) { l.Least = nil }),
		"column of most": list(func(l *messageList) { l.Most = nil }),
		"duplicate": list(func(l *messageList) {
			l.Names, l.Least, l.Most = append(l.Names, l.Names[0]), append(l.Least, 1), append(l.Most, 1)
		}),
		"rows": list(func(l *messageList) {
			for i := range sharedRows {
				l.Names, l.Least, l.Most = append(l.Names, fmt.Sprintf("t%d p l ::", i)), append(l.Least, 1), append(l.Most, 1)
			}
		}),
		"no name": name(""), "three words": name("a p l"), "five words": name("a p l :: x"), "control": name("a p l \x1b[2J"), "newline": name("a p l a\nb"),
		"beyond ASCII": name("ä p l ::"), "brace": name("a p l {}"), "no partition": name("a p l "), "half a partition": name("a p l user"), "policy": name("a P l ::"), "limit": name("a p  ::"),
		"long tenant": name(strings.Repeat("x", quota.MaxID+1) + " p l ::"),
	}
}

func TestHostileMessages(t *testing.T) {
	t.Parallel()
	c := newCluster(t, "eu", "us")
	good := c.all[1].message()
	for what, m := range hostile() {
		if err := c.all[0].Receive(process("us", 1), m); err == nil {
			t.Errorf("%s: taken", what)
		}
	}
	if len(c.all[0].peers) > 0 {
		t.Fatal("something was kept")
	}
	for n := range MaxPeers + 3 {
		err := c.all[0].Receive(process("us", n), good)
		if (err != nil) != (n >= MaxPeers) {
			t.Fatalf("process %d: %v", n, err)
		}
	}
	if err := c.all[0].Receive(process("us", 0), good); err != nil {
		t.Errorf("a known process: %v", err)
	}
}

// TestHostileSize: a message of a few bytes cannot have many allocated.
func TestHostileSize(t *testing.T) {
	for what, text := range map[string]string{
		"lists":  "[" + strings.Repeat("{},", maxShared/3-1) + "{}]",
		"names":  `[{"names":[` + strings.Repeat(`"",`, maxShared/3-9) + `""]}]`,
		"counts": `[{"least":[` + strings.Repeat("1,", maxShared/2-9) + "1]}]",
	} {
		m := s2.Encode(nil, []byte(text))
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, err := decode(m)
		runtime.ReadMemStats(&after)
		if n := after.TotalAlloc - before.TotalAlloc; err == nil || len(text) > maxShared || n > 32*maxShared {
			t.Errorf("%s: %d bytes, %d before they were compressed, have %d allocated: %v", what, len(m), len(text), n, err)
		}
	}
}

// FuzzDecode: whatever a message is, what is taken is in range and can be added up and shown.
func FuzzDecode(f *testing.F) {
	for _, m := range hostile() {
		f.Add(m)
	}
	c := newCluster(f, "eu", "us")
	c.deny(1, "acme", 3)
	f.Add(c.all[1].message())
	f.Fuzz(func(t *testing.T, m []byte) {
		s, err := decode(m)
		if err != nil {
			return
		}
		for _, by := range s.lists {
			for _, l := range by {
				sum := combine([]list{l, l})
				if len(sum.rows) != len(l.rows) || sum.others != 2*l.others {
					t.Fatalf("%d rows of %d, others %d of %d", len(sum.rows), len(l.rows), sum.others, l.others)
				}
				for _, row := range sum.rows {
					if row.AtLeast < 0 || row.AtLeast > row.AtMost || row.AtMost > 2*most || quota.ValidName(row.Policy) != nil || strings.ContainsAny(row.Tenant+row.Partition, "\x1b\n {}") {
						t.Fatalf("%+v", row)
					}
				}
			}
		}
	})
}
