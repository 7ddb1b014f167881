package wire_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/regiond/regiond/quota"
	"github.com/regiond/regiond/sync/wire"
)

const month = 31 * 24 * 3600 * 1_000_000 // µs, the longest window

// setting is one value of a message: says is part of the error about a bad one.
type setting[M, V any] struct {
	says string
	set  func(m *M, v V)
	bad  []V
	good []V
}

// outOfRange decodes good messages with one value changed.
func outOfRange[M, V any](t *testing.T, good func() *M, encode func([]byte, *M) []byte, decode func([]byte) (*M, error), settings []setting[M, V]) {
	t.Helper()
	for _, s := range settings {
		for _, v := range s.bad {
			m := good()
			s.set(m, v)
			got, err := decode(encode(nil, m))
			wantRefused(t, got != nil, err, wire.ReasonRange, s.says)
		}
		for _, v := range s.good {
			m := good()
			s.set(m, v)
			if got, err := decode(encode(nil, m)); err != nil || !cmp.Equal(m, got) {
				t.Errorf("%s: %v is just inside its range, and arrived as %+v, error %v", s.says, v, got, err)
			}
		}
	}
}

func TestUsageOutOfRangeIsRefused(t *testing.T) {
	type usage = wire.Usage
	good := func() *usage { return usageOf(1, 3) }
	long := strings.Repeat("e", 63)
	outOfRange(t, good, wire.AppendUsage, wire.DecodeUsage, []setting[usage, string]{
		{"from: region", func(u *usage, v string) { u.From.Region = v }, []string{"", "EU", "-eu", "eu.west", "eu\n", long + "e"}, []string{long}},
		{"from: instance", func(u *usage, v string) { u.From.Instance = v }, []string{"", "a b", "ä", "a\x7f", strings.Repeat("i", 256)}, []string{strings.Repeat("~", 255)}},
		{"origin", func(u *usage, v string) { u.Origin = v }, []string{"*"}, []string{"", "us"}},
		{"limit", func(u *usage, v string) { u.Groups[0].Limit = v }, []string{"", "standard", "standard.", ".burst", "a.b.c", "a b.c", "a." + long + "b"}, []string{long + "." + long}},
	})
	const end = wire.EndOfTime
	outOfRange(t, good, wire.AppendUsage, wire.DecodeUsage, []setting[usage, int64]{
		{"from: boot_us", func(u *usage, v int64) { u.From.Boot = v }, []int64{0, -1, end}, []int64{1, end - 1}},
		{"seq", func(u *usage, v int64) { u.Seq = uint64(v) }, []int64{0}, []int64{1, -1}},
		{"time_us", func(u *usage, v int64) { u.TimeUS = v }, []int64{0, -1, end}, []int64{1, end - 1}},
		{"number", func(u *usage, v int64) { u.Number = uint64(v) }, []int64{0}, []int64{1, -1}},
		{"origin_time_us", func(u *usage, v int64) { u.OriginTimeUS = v }, []int64{-1, end}, []int64{0, end - 1}},
		{"generations[1]", func(u *usage, v int64) { u.Groups[0].Generations[1] = v }, []int64{0, -1, end + 1, -1 << 63, 1<<63 - 1}, []int64{1, end}},
		{"units[1]", func(u *usage, v int64) { u.Groups[0].Units[1] = v }, []int64{-1, quota.MaxCounter + 1}, []int64{0, quota.MaxCounter}},
	})
	outOfRange(t, good, wire.AppendUsage, wire.DecodeUsage, []setting[usage, wire.Chunk]{{
		"", func(u *usage, v wire.Chunk) {
			if u.Chunk = v; v.Snapshot > 0 {
				u.Number = 0
			}
		},
		[]wire.Chunk{{Index: 1}, {Count: 1}, {Snapshot: 1}, {Snapshot: 1, Index: 2, Count: 2}, {Snapshot: 1, Index: 1, Count: wire.MaxChunks + 1}, {Snapshot: 1, Count: 1, Since: 2, UpTo: 1}, {Snapshot: 1, Count: 1, Answers: make([]wire.Answer, 1)}},
		[]wire.Chunk{{}, {Snapshot: 1, Count: 1, Since: 2, UpTo: 2}, {Snapshot: 1, Index: wire.MaxChunks - 1, Count: wire.MaxChunks}},
	}})
	type window struct{ us, bucketUS, bucket int64 }
	set := func(u *usage, v window) {
		u.Groups[0].WindowUS, u.Groups[0].BucketUS, u.Groups[0].Bucket = v.us, v.bucketUS, v.bucket
	}
	outOfRange(t, good, wire.AppendUsage, wire.DecodeUsage, []setting[usage, window]{
		{"window_us", set, []window{{999, 999, 0}, {-minute, minute, 0}, {month + 1, month, 0}}, []window{{1000, 1000, 0}, {month, month, 0}}},
		{"bucket_us", set, []window{{minute, 0, bucket}, {minute, -1, bucket}, {minute, minute + 1, bucket}, {minute, minute/60 - 1, bucket}, {1001, 16, bucket}}, // 60 buckets of 16 µs are 960
			[]window{{minute, minute / 60, bucket}, {1001, 17, bucket}}},
		{"bucket must", set, []window{{minute, minute, -1}, {minute, minute, 1 << 62}, // the product would overflow to 0
			{minute, minute, end/minute + 1}, {1 << 20, 1 << 20, 1 << 32}}, // starts at the end of time, or after
			[]window{{minute, minute, end / minute}, {1 << 20, 1 << 20, 1<<32 - 1}, {minute, minute, 0}}},
	})
}

func TestHeartbeatOutOfRangeIsRefused(t *testing.T) {
	type heartbeat = wire.Heartbeat
	good := func() *heartbeat { return beatOf(2, 3) }
	outOfRange(t, good, wire.AppendHeartbeat, wire.DecodeHeartbeat, []setting[heartbeat, []string]{
		{"members[", func(b *heartbeat, v []string) { b.Members = v }, [][]string{{"eu west"}, {"a", ""}, {"b", "a"}, {"a", "b", "b"}}, [][]string{nil, {"a", "a-", "a0", "a_", "aa"}}}, // ascending by byte
		{"from: region", func(b *heartbeat, v []string) { b.From.Region = v[0] }, [][]string{{"rl.v1"}}, nil},
		{"acks[1]: region", func(b *heartbeat, v []string) { b.Acks[1].Process.Region = v[0] }, [][]string{{""}}, nil},
		{"weights[2]: a name", func(b *heartbeat, v []string) { b.Weights[2].Region = v[0] }, [][]string{{""}}, [][]string{{"a"}}}, // in any order
		{"weights[2]: region \"r000\" is duplicated", func(b *heartbeat, v []string) { b.Weights[2].Region = v[0] }, [][]string{{"r000"}}, nil},
	})
	outOfRange(t, good, wire.AppendHeartbeat, wire.DecodeHeartbeat, []setting[heartbeat, int64]{
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
	outOfRange(t, good, wire.AppendSnapshotRequest, wire.DecodeSnapshotRequest, []setting[request, []string]{
		{"missing[", func(r *request, v []string) { r.Missing = v }, [][]string{{""}, {"b", "a"}, {"a", "a"}, {"eu west"}}, [][]string{{"a", "b"}}},
		{"from: region", func(r *request, v []string) { r.From.Region = v[0] }, [][]string{{""}}, nil},
		{"to: region", func(r *request, v []string) { r.To.Region = v[0] }, [][]string{{""}}, nil},
	})
	outOfRange(t, good, wire.AppendSnapshotRequest, wire.DecodeSnapshotRequest, []setting[request, uint64]{
		{"request", func(r *request, v uint64) { r.Request = v }, []uint64{0}, []uint64{1, 1<<64 - 1}},
	})
}
