package wire_test

import (
	"bytes"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/regiond/regiond/quota"
	"github.com/regiond/regiond/sync/wire"
)

const month = 31 * 24 * 3600 * 1_000_000 // µs, the longest window

// setting is one value of a message: says is part of the error about a bad one.
type setting[M, V any] struct {
	says string
	set  func(m M, v V)
	bad  []V
	good []V
}

// outOfRange decodes good messages with one value changed.
func outOfRange[M wire.Message, V any](t *testing.T, good func() M, settings []setting[M, V]) {
	t.Helper()
	for _, s := range settings {
		for _, v := range s.bad {
			m := good()
			s.set(m, v)
			_, err := wire.Decode[M](wire.Append(nil, m))
			wantRefused(t, err, wire.ReasonRange, s.says)
		}
		for _, v := range s.good {
			m := good()
			s.set(m, v)
			if got, err := wire.Decode[M](wire.Append(nil, m)); err != nil || !cmp.Equal(m, got) {
				t.Errorf("%s: %v is just inside its range, and arrived as %+v, error %v", s.says, v, got, err)
			}
		}
	}
}

func TestUsageOutOfRangeIsRefused(t *testing.T) {
	type usage = wire.Usage
	good := func() *usage { return usageOf(1, 3) }
	long := strings.Repeat("e", 63)
	outOfRange(t, good, []setting[*usage, string]{
		{"from: region", func(u *usage, v string) { u.From.Region = v }, []string{"", "EU", "-eu", "eu.west", "eu\n", long + "e"}, []string{long}},
		{"from: instance", func(u *usage, v string) { u.From.Instance = v }, []string{"", "a b", "ä", "a\x7f", strings.Repeat("i", 256)}, []string{strings.Repeat("~", 255)}},
		{"origin", func(u *usage, v string) { u.Origin = v }, []string{"*"}, []string{"", "us"}},
		{"limit", func(u *usage, v string) { u.Groups[0].Limit = v }, []string{"", "standard", "standard.", ".burst", "a.b.c", "a b.c", "a." + long + "b"}, []string{long + "." + long}},
	})
	const end = wire.EndOfTime
	holding := func() *usage {
		u := usageOf(1, 3)
		u.Groups[0].Gauges = []wire.Gauge{1: {Sequence: 1, Units: 1}, 2: {}}
		return u
	}
	outOfRange(t, holding, []setting[*usage, int64]{
		{"gauges[1]: sequence", func(u *usage, v int64) { u.Groups[0].Gauges[1].Sequence = v }, []int64{end + 1, 1<<63 - 1}, []int64{1, end}},
		{"gauges[1]: units", func(u *usage, v int64) { u.Groups[0].Gauges[1].Units = v }, []int64{-1, quota.MaxUnits + 1}, []int64{0, quota.MaxUnits}},
		{"gauges[1]: left", func(u *usage, v int64) { u.Groups[0].Gauges[1].LeftUS = v }, []int64{-1, 3_600_000_001}, []int64{0, 3_600_000_000}},
	})
	outOfRange(t, good, []setting[*usage, int64]{
		{"from: boot_us", func(u *usage, v int64) { u.From.Boot = v }, []int64{0, -1, end}, []int64{1, end - 1}},
		{"seq", func(u *usage, v int64) { u.Seq = uint64(v) }, []int64{0}, []int64{1, -1}},
		{"time_us", func(u *usage, v int64) { u.TimeUS = v }, []int64{0, -1, end}, []int64{1, end - 1}},
		{"number", func(u *usage, v int64) { u.Number = uint64(v) }, []int64{0}, []int64{1, -1}},
		{"origin_time_us", func(u *usage, v int64) { u.OriginTimeUS = v }, []int64{-1, end}, []int64{0, end - 1}},
		{"generations[1]", func(u *usage, v int64) { u.Groups[0].Generations[1] = v }, []int64{0, -1, end + 1, -1 << 63, 1<<63 - 1}, []int64{1, end}},
		{"units[1]", func(u *usage, v int64) { u.Groups[0].Units[1] = v }, []int64{-1, quota.MaxCounter + 1}, []int64{0, quota.MaxCounter}},
	})
	outOfRange(t, good, []setting[*usage, wire.Chunk]{{
		"", func(u *usage, v wire.Chunk) {
			if u.Chunk = v; v.Snapshot > 0 {
				u.Number = 0
			}
		},
		[]wire.Chunk{{Index: 1}, {Count: 1}, {Snapshot: 1}, {Snapshot: 1, Index: 2, Count: 2}, {Snapshot: 1, Index: 1, Count: wire.MaxChunks + 1}, {Snapshot: 1, Count: 1, Since: 2, UpTo: 1}, {Snapshot: 1, Count: 1, Answers: make([]wire.Answer, 1)}},
		[]wire.Chunk{{}, {Snapshot: 1, Count: 1, Since: 2, UpTo: 2}, {Snapshot: 1, Index: wire.MaxChunks - 1, Count: wire.MaxChunks}},
	}})
	type window struct{ us, bucket int64 }
	set := func(u *usage, v window) { u.Groups[0].WindowUS, u.Groups[0].Bucket = v.us, v.bucket }
	outOfRange(t, good, []setting[*usage, window]{
		{"window_us", set, []window{{999, 0}, {0, 0}, {-minute, 0}, {month + 1, 0}}, []window{{1000, 0}, {month, 0}}},
		{"bucket must", set, []window{{minute, -1}, {minute, 1 << 62}, // the product would overflow to 0
			{minute, end/minute + 1}, {1 << 20, 1 << 32}}, // starts at the end of time, or after
			[]window{{minute, end / minute}, {1 << 20, 1<<32 - 1}, {minute, 0}}},
	})
	period := func() *usage { return withPeriods(good()) }
	outOfRange(t, period, []setting[*usage, int64]{
		{"bucket", func(u *usage, v int64) { u.Groups[0].Bucket = v }, []int64{-1, wire.MaxPeriod + 1}, []int64{0, wire.MaxPeriod}},
		{"ends_us", func(u *usage, v int64) { u.Groups[0].EndsUS = v }, []int64{-1, end, 1<<63 - 1}, []int64{1, end - 1}},
		{"generations[1]", func(u *usage, v int64) { u.Groups[0].Generations[1] = v }, []int64{0, end + 1, -1 << 63}, []int64{1, end}},
	})
}

// A process that does not know periods reads the rest of a message and skips them, since they are in a field of their own. Among
// groups, where it would take one for a bucket of the far future, none is accepted, and among periods nothing else.
func TestPeriodsAreApart(t *testing.T) {
	whole := withPeriods(usageOf(2, 3))
	body := whole.Groups[1:]
	older := *whole
	older.Groups = whole.Groups[:1]
	// Envelope.body, Body.usage: what an older process sees is the same without field 9.
	_, _, n := protowire.ConsumeField(wire.Append(nil, whole))
	data := wire.Append(nil, whole)[n:]
	for range 2 {
		_, _, tag := protowire.ConsumeTag(data)
		data, _ = protowire.ConsumeBytes(data[tag:])
	}
	var kept, apart []byte
	for len(data) > 0 {
		num, _, n := protowire.ConsumeField(data)
		if num == 9 {
			apart = append(apart, data[:n]...)
		} else {
			kept = append(kept, data[:n]...)
		}
		data = data[n:]
	}
	got, err := wire.Decode[*wire.Usage](envelope(nested(1, kept)))
	if diff := cmp.Diff(&older, got); err != nil || diff != "" {
		t.Errorf("an older process gets error %v, and (-want +got):\n%s", err, diff)
	}
	if len(apart) == 0 || len(body) != 1 {
		t.Fatal("there are no periods")
	}
	value, _ := protowire.ConsumeBytes(apart[1:])
	for name, fields := range map[string][]byte{
		"a period among groups":   nested(6, value),
		"a bucket among periods":  nested(9, group()[2:]),
		"a period that grew":      nested(9, cat(value, nested(8, make([]byte, 6*8)))),
		"a period without an end": nested(9, cat(value, number(13, 0))),
	} {
		_, err := wire.Decode[*wire.Usage](usage(fields))
		wantRefused(t, err, wire.ReasonRange, "ends_us")
		if err == nil {
			t.Errorf("%s is accepted", name)
		}
	}
	many := usage(bytes.Repeat(nested(6, nil), wire.MaxGroups), nested(9, nil))
	if _, err := wire.Decode[*wire.Usage](many); reasonOf(err) != wire.ReasonSize {
		t.Errorf("groups and periods that are too many together: %v", err)
	}
}

// Every writer sends the window as the length of a bucket. Another length is refused, also a good one of an earlier version.
func TestOtherBucketsAreRefused(t *testing.T) {
	for _, length := range []int64{0, -1, minute / 10, minute - 1, minute + 1, month} {
		head := cat(text(1, "standard.burst"), number(2, minute), number(3, uint64(length)), number(4, bucket))
		_, err := wire.Decode[*wire.Usage](usage(nested(6, head)))
		wantRefused(t, err, wire.ReasonRange, "buckets must be as long as its window")
	}
	if _, err := wire.Decode[*wire.Usage](usage(group())); err != nil {
		t.Error(err)
	}
}

func TestHeartbeatOutOfRangeIsRefused(t *testing.T) {
	type heartbeat = wire.Heartbeat
	good := func() *heartbeat { return beatOf(2, 3) }
	outOfRange(t, good, []setting[*heartbeat, []string]{
		{"members[", func(b *heartbeat, v []string) { b.Members = v }, [][]string{{"eu west"}, {"a", ""}, {"b", "a"}, {"a", "b", "b"}}, [][]string{nil, {"a", "a-", "a0", "a_", "aa"}}}, // ascending by byte
		{"from: region", func(b *heartbeat, v []string) { b.From.Region = v[0] }, [][]string{{"rl.v1"}}, nil},
		{"acks[1]: region", func(b *heartbeat, v []string) { b.Acks[1].Process.Region = v[0] }, [][]string{{""}}, nil},
		{"weights[2]: a name", func(b *heartbeat, v []string) { b.Weights[2].Region = v[0] }, [][]string{{""}}, [][]string{{"a"}}}, // in any order
		{"weights[2]: region \"r000\" is duplicated", func(b *heartbeat, v []string) { b.Weights[2].Region = v[0] }, [][]string{{"r000"}}, nil},
	})
	outOfRange(t, good, []setting[*heartbeat, int64]{
		{"seq", func(b *heartbeat, v int64) { b.Seq = uint64(v) }, []int64{0}, nil},
		{"time_us", func(b *heartbeat, v int64) { b.TimeUS = v }, []int64{-midnight}, nil},
		{"acks[1]: boot_us", func(b *heartbeat, v int64) { b.Acks[1].Process.Boot = v }, []int64{0}, nil},
		{"acks[1]: seq", func(b *heartbeat, v int64) { b.Acks[1].Seq = uint64(v) }, []int64{0}, nil},
		{"acks[1]: received_us", func(b *heartbeat, v int64) { b.Acks[1].ReceivedUS = v }, []int64{0, wire.EndOfTime}, nil},
		{"weights[2]: weight", func(b *heartbeat, v int64) { b.Weights[2].Weight = v }, []int64{0, -1, quota.MaxWeight + 1}, []int64{quota.MaxWeight}},
		{"unsent_ms", func(b *heartbeat, v int64) { b.UnsentMS = v }, []int64{-1, 1 << 62}, nil},
	})
}

func TestSnapshotRequestOutOfRangeIsRefused(t *testing.T) {
	type request = wire.SnapshotRequest
	good := func() *request { return &request{From: process("eu"), To: process("us"), Request: 1} }
	outOfRange(t, good, []setting[*request, []string]{
		{"missing[", func(r *request, v []string) { r.Missing = v }, [][]string{{""}, {"b", "a"}, {"a", "a"}, {"eu west"}}, [][]string{{"a", "b"}}},
		{"from: region", func(r *request, v []string) { r.From.Region = v[0] }, [][]string{{""}}, nil},
		{"to: region", func(r *request, v []string) { r.To.Region = v[0] }, [][]string{{""}}, nil},
	})
	outOfRange(t, good, []setting[*request, uint64]{
		{"request", func(r *request, v uint64) { r.Request = v }, []uint64{0}, []uint64{1, 1<<64 - 1}},
	})
}

func TestLoansOutOfRangeAreRefused(t *testing.T) {
	type loans = wire.Loans
	good := func() *loans {
		return &loans{
			Head: wire.Head{From: process("eu-west"), Seq: 1}, Wants: []wire.Want{wantOf(1, 0), wantOf(2, 2)},
			Grants: []wire.Grant{grantOf(1)}, Returns: []wire.Return{returnOf(1)},
		}
	}
	const end = wire.EndOfTime
	amount := []int64{-1, end + 1, -1 << 63, 1<<63 - 1}
	outOfRange(t, good, []setting[*loans, int64]{
		{"from: boot_us", func(l *loans, v int64) { l.From.Boot = v }, []int64{0}, nil},
		{"seq", func(l *loans, v int64) { l.Seq = uint64(v) }, []int64{0}, []int64{1, -1}},
		{"wants[0]: epoch of the want", func(l *loans, v int64) { l.Wants[0].Epoch = uint32(v) }, []int64{0}, []int64{1, 1<<32 - 1}},
		{"wants[1]: want: time", func(l *loans, v int64) { l.Wants[1].Time = v }, []int64{0, -1, end, -1 << 63}, []int64{1, end - 1}},
		{"wants[0]: units[0]", func(l *loans, v int64) { l.Wants[0].Need = v }, amount, []int64{0, end}},
		{"wants[0]: units[1]", func(l *loans, v int64) { l.Wants[0].Lack = v }, amount, []int64{0, end}},
		{"wants[0]: units[2]", func(l *loans, v int64) { l.Wants[0].Urgent = v }, amount, []int64{0, end}},
		{"wants[0]: units[3]", func(l *loans, v int64) { l.Wants[0].Share = v }, amount, []int64{0, end}},
		{"wants[0]: units[4]", func(l *loans, v int64) { l.Wants[0].Ceil = v }, amount, []int64{0, end}},
		{"wants[0]: units[5]", func(l *loans, v int64) { l.Wants[0].Slack = v }, amount, []int64{0, end}},
		{"wants[0]: units[6]", func(l *loans, v int64) { l.Wants[0].Cost = v }, amount, []int64{0, end}},
		{"wants[0]: period", func(l *loans, v int64) { l.Wants[0].Period = v }, amount, []int64{0, end}},
		{"grants[0]: period", func(l *loans, v int64) { l.Grants[0].Period = v }, amount, []int64{0, end}},
		{"wants[1]: held[1]: epoch of the loan", func(l *loans, v int64) { l.Wants[1].Held[1].ID.Epoch = uint32(v) }, []int64{0}, []int64{1}},
		{"wants[1]: held[1]: loan: time", func(l *loans, v int64) { l.Wants[1].Held[1].ID.Stamp = v }, []int64{0, end}, []int64{1, end - 1}},
		{"wants[1]: held[1]: units", func(l *loans, v int64) { l.Wants[1].Held[1].Units = v }, amount, []int64{20, end}},
		{"wants[1]: held[1]: back", func(l *loans, v int64) { l.Wants[1].Held[1].Back = v }, []int64{-1, 121}, []int64{0, 120}},
		{"wants[1]: held[1]: until", func(l *loans, v int64) { l.Wants[1].Held[1].Until = v }, []int64{0, end + 1}, []int64{1, end}},
		{"grants[0]: epoch of the loan", func(l *loans, v int64) { l.Grants[0].ID.Epoch = uint32(v) }, []int64{0}, nil},
		{"grants[0]: epoch of the request", func(l *loans, v int64) { l.Grants[0].Epoch = uint32(v) }, []int64{0}, nil},
		{"grants[0]: request: time", func(l *loans, v int64) { l.Grants[0].Time = v }, []int64{0, end}, []int64{1, end - 1}},
		{"grants[0]: units", func(l *loans, v int64) { l.Grants[0].Units = v }, append(amount, 0), []int64{1, end}},
		{"returns[0]: epoch of the loan", func(l *loans, v int64) { l.Returns[0].Loan.Epoch = uint32(v) }, []int64{0}, nil},
		{"returns[0]: loan: time", func(l *loans, v int64) { l.Returns[0].Loan.Stamp = v }, []int64{0, end}, nil},
		{"returns[0]: units", func(l *loans, v int64) { l.Returns[0].Back = v }, amount, []int64{0, end}},
	})
	outOfRange(t, good, []setting[*loans, float64]{
		{"wants[0]: rate", func(l *loans, v float64) { l.Wants[0].Rate = v }, []float64{-1, math.NaN(), math.Inf(1)}, []float64{0, math.MaxFloat32}},
	})
	outOfRange(t, good, []setting[*loans, string]{
		{"wants[1]: held[0]: lender", func(l *loans, v string) { l.Wants[1].Held[0].Peer = v }, []string{"", "EU"}, []string{"a"}},
	})
	// A lender that is not in the list, and more than fit.
	body := envelope(nested(4, cat(nested(1, nil), nested(5, nested(11, number(1, 3))))))
	_, err := wire.Decode[*wire.Loans](body)
	wantRefused(t, err, wire.ReasonRange, "lender 3 of 0")
	for num, most := range map[protowire.Number]int{5: wire.MaxLoans, 6: wire.MaxLoans, 7: wire.MaxLoans} {
		_, err := wire.Decode[*wire.Loans](envelope(nested(4, slices.Repeat(nested(num, nil), most+1))))
		wantRefused(t, err, wire.ReasonSize, "more than 2048")
	}
	_, err = wire.Decode[*wire.Loans](envelope(nested(4, nested(5, slices.Repeat(nested(11, nil), wire.MaxHeld+1)))))
	wantRefused(t, err, wire.ReasonSize, "more than 8192 held")
}

func TestResetsOutOfRangeAreRefused(t *testing.T) {
	type reset = wire.Reset
	good := func() *reset {
		return &reset{Head: wire.Head{From: process("eu"), Seq: 1}, ID: 1, To: []quota.Process{process("us")}, Cuts: []wire.Cut{{Region: "ap", UpTo: midnight}}}
	}
	outOfRange(t, good, []setting[*reset, int64]{
		{"from: boot_us", func(r *reset, v int64) { r.From.Boot = v }, []int64{0}, nil},
		{"seq", func(r *reset, v int64) { r.Seq = uint64(v) }, []int64{0}, []int64{1, -1}},
		{"id", func(r *reset, v int64) { r.ID = uint64(v) }, []int64{0}, []int64{1, -1}},
		{"to[0]: boot_us", func(r *reset, v int64) { r.To[0].Boot = v }, []int64{0, wire.EndOfTime}, nil},
		{"cuts[0]: up_to", func(r *reset, v int64) { r.Cuts[0].UpTo = v }, []int64{0, -1, wire.EndOfTime + 1}, []int64{1, wire.EndOfTime}},
		{"cuts[0]: state", func(r *reset, v int64) { r.Cuts[0].State = wire.CutState(v) }, []int64{3, 255}, []int64{0, 1, 2}},
	})
	outOfRange(t, good, []setting[*reset, string]{
		{"cuts[0]: region", func(r *reset, v string) { r.Cuts[0].Region = v }, []string{"", "EU"}, []string{"a"}},
	})
	for _, num := range []protowire.Number{5, 6} {
		_, err := wire.Decode[*wire.Reset](envelope(nested(5, slices.Repeat(nested(num, nil), quota.MaxRegions+1))))
		wantRefused(t, err, wire.ReasonSize, "more than 100")
	}
}

func TestTopsOutOfRangeAreRefused(t *testing.T) {
	good := func() *wire.Top { return &wire.Top{Head: wire.Head{From: process("eu"), Seq: 1}, Sealed: []byte("x")} }
	outOfRange(t, good, []setting[*wire.Top, int64]{
		{"from: boot_us", func(m *wire.Top, v int64) { m.From.Boot = v }, []int64{0, wire.EndOfTime}, nil},
		{"seq", func(m *wire.Top, v int64) { m.Seq = uint64(v) }, []int64{0}, []int64{1, -1}},
	})
}

func TestOverridesOutOfRangeAreRefused(t *testing.T) {
	good := func() *wire.Overrides {
		return &wire.Overrides{Head: wire.Head{From: process("eu"), Seq: 1}, Sealed: []byte("x")}
	}
	outOfRange(t, good, []setting[*wire.Overrides, int64]{
		{"from: boot_us", func(m *wire.Overrides, v int64) { m.From.Boot = v }, []int64{0, wire.EndOfTime}, nil},
		{"seq", func(m *wire.Overrides, v int64) { m.Seq = uint64(v) }, []int64{0}, []int64{1, -1}},
	})
}
