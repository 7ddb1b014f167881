package wire_test

import (
	"strings"
	"testing"

	"github.com/regiond/regiond/quota"
	"github.com/regiond/regiond/sync/wire"
)

const month = 31 * 24 * 3600 * 1_000_000 // µs, the longest window

// Each row makes one value of a good message bad. The first column says what the
// error must name, or is "ok" for a value that is just inside.
func TestUsageOutOfRangeIsRefused(t *testing.T) {
	group := func(change func(g *wire.Group)) func(*wire.Usage) {
		return func(u *wire.Usage) { change(&u.Groups[0]) }
	}
	limit := func(s string) func(*wire.Usage) { return group(func(g *wire.Group) { g.Limit = s }) }
	window := func(w, length, bucket int64) func(*wire.Usage) {
		return group(func(g *wire.Group) { g.WindowUS, g.BucketUS, g.Bucket = w, length, bucket })
	}
	epoch := func(e int64) func(*wire.Usage) { return group(func(g *wire.Group) { g.Generations[1] = e }) }
	units := func(n int64) func(*wire.Usage) { return group(func(g *wire.Group) { g.Units[1] = n }) }
	chunk := func(c wire.Chunk) func(*wire.Usage) { return func(u *wire.Usage) { u.Chunk = c } }
	rows := []struct {
		says   string
		change func(*wire.Usage)
	}{
		{"from: region", func(u *wire.Usage) { u.From.Region = "" }},
		{"from: region", func(u *wire.Usage) { u.From.Region = "EU" }},
		{"from: region", func(u *wire.Usage) { u.From.Region = "-eu" }},
		{"from: region", func(u *wire.Usage) { u.From.Region = "eu.west" }},
		{"from: region", func(u *wire.Usage) { u.From.Region = "eu\n" }},
		{"from: region", func(u *wire.Usage) { u.From.Region = strings.Repeat("e", 64) }},
		{"ok", func(u *wire.Usage) { u.From.Region = strings.Repeat("e", 63) }},
		{"from: instance", func(u *wire.Usage) { u.From.Instance = "" }},
		{"from: instance", func(u *wire.Usage) { u.From.Instance = "a b" }},
		{"from: instance", func(u *wire.Usage) { u.From.Instance = "ä" }},
		{"from: instance", func(u *wire.Usage) { u.From.Instance = "a\x7f" }},
		{"from: instance", func(u *wire.Usage) { u.From.Instance = strings.Repeat("i", 256) }},
		{"ok", func(u *wire.Usage) { u.From.Instance = strings.Repeat("~", 255) }},
		{"from: boot_us", func(u *wire.Usage) { u.From.Boot = 0 }},
		{"from: boot_us", func(u *wire.Usage) { u.From.Boot = -1 }},
		{"from: boot_us", func(u *wire.Usage) { u.From.Boot = wire.EndOfTime }},
		{"ok", func(u *wire.Usage) { u.From.Boot = 1 }},
		{"seq", func(u *wire.Usage) { u.Seq = 0 }},
		{"time_us", func(u *wire.Usage) { u.TimeUS = 0 }},
		{"time_us", func(u *wire.Usage) { u.TimeUS = -1 }},
		{"time_us", func(u *wire.Usage) { u.TimeUS = wire.EndOfTime }},
		{"ok", func(u *wire.Usage) { u.TimeUS = wire.EndOfTime - 1 }},
		{"origin_time_us", func(u *wire.Usage) { u.OriginTimeUS = -1 }},
		{"origin_time_us", func(u *wire.Usage) { u.OriginTimeUS = wire.EndOfTime }},
		{"ok", func(u *wire.Usage) { u.OriginTimeUS = wire.EndOfTime - 1 }},
		{"origin", func(u *wire.Usage) { u.Origin = "*" }},
		{"chunk", chunk(wire.Chunk{Index: 1})},
		{"chunk", chunk(wire.Chunk{Count: 1})},
		{"chunk", chunk(wire.Chunk{Snapshot: 1})},
		{"chunk", chunk(wire.Chunk{Snapshot: 1, Index: 2, Count: 2})},
		{"chunk", chunk(wire.Chunk{Snapshot: 1, Index: 1, Count: wire.MaxChunks + 1})},
		{"ok", chunk(wire.Chunk{Snapshot: 1, Index: wire.MaxChunks - 1, Count: wire.MaxChunks})},
		{"limit", limit("")},
		{"limit", limit("standard")},
		{"limit", limit("standard.")},
		{"limit", limit(".burst")},
		{"limit", limit("a.b.c")},
		{"limit", limit("a b.c")},
		{"limit", limit("a." + strings.Repeat("b", 64))},
		{"ok", limit(strings.Repeat("a", 63) + "." + strings.Repeat("b", 63))},
		{"window_us", window(999, 999, 0)},
		{"window_us", window(-minute, minute, 0)},
		{"window_us", window(month+1, month, 0)},
		{"ok", window(1000, 1000, 0)},
		{"ok", window(month, month, 0)},
		{"bucket_us", window(minute, 0, bucket)},
		{"bucket_us", window(minute, -1, bucket)},
		{"bucket_us", window(minute, minute+1, bucket)},
		{"bucket_us", window(minute, minute/60-1, bucket)},
		{"ok", window(minute, minute/60, bucket)},
		{"bucket_us", window(1001, 16, bucket)}, // 60 buckets of 16 µs are 960
		{"ok", window(1001, 17, bucket)},
		{"bucket must", window(minute, minute, -1)},
		{"bucket must", window(minute, minute, 1<<62)},                   // the product would overflow to 0
		{"bucket must", window(minute, minute, wire.EndOfTime/minute+1)}, // starts after the end of time
		{"ok", window(minute, minute, wire.EndOfTime/minute)},            // starts just before
		{"bucket must", window(1<<20, 1<<20, 1<<32)},                     // starts at the end of time
		{"ok", window(1<<20, 1<<20, 1<<32-1)},
		{"ok", window(minute, minute, 0)},
		{"generations[1]", epoch(0)},
		{"generations[1]", epoch(-1)},
		{"generations[1]", epoch(wire.EndOfTime + 1)},
		{"generations[1]", epoch(-1 << 63)},
		{"generations[1]", epoch(1<<63 - 1)},
		{"ok", epoch(wire.EndOfTime)},
		{"ok", epoch(1)},
		{"units[1]", units(-1)},
		{"units[1]", units(quota.MaxCounter + 1)},
		{"ok", units(0)},
		{"ok", units(quota.MaxCounter)},
	}
	for _, row := range rows {
		u := usageOf(1, 3)
		row.change(u)
		got, err := wire.DecodeUsage(wire.AppendUsage(nil, u))
		wantRangeOr(t, got != nil, err, row.says)
	}
}

func TestMissingOutOfRangeIsRefused(t *testing.T) {
	for _, names := range [][]string{{""}, {"b", "a"}, {"a", "a"}, {"eu west"}} {
		r := &wire.SnapshotRequest{From: process("eu"), Missing: names}
		if got, err := wire.DecodeSnapshotRequest(wire.AppendSnapshotRequest(nil, r)); reasonOf(err) != wire.ReasonRange || got != nil {
			t.Errorf("missing %q: %v, %v", names, got, err)
		}
	}
	r := &wire.SnapshotRequest{From: process("eu"), Missing: make([]string, wire.MaxRegions+1)}
	if _, err := wire.DecodeSnapshotRequest(wire.AppendSnapshotRequest(nil, r)); reasonOf(err) != wire.ReasonSize {
		t.Errorf("%d missing: %v", len(r.Missing), err)
	}
}

func TestHeartbeatOutOfRangeIsRefused(t *testing.T) {
	members := func(names ...string) func(*wire.Heartbeat) { return func(b *wire.Heartbeat) { b.Members = names } }
	rows := []struct {
		says   string
		change func(*wire.Heartbeat)
	}{
		{"from: region", func(b *wire.Heartbeat) { b.From.Region = "rl.v1" }},
		{"seq", func(b *wire.Heartbeat) { b.Seq = 0 }},
		{"time_us", func(b *wire.Heartbeat) { b.TimeUS = -midnight }},
		{"acks[1]: region", func(b *wire.Heartbeat) { b.Acks[1].Process.Region = "" }},
		{"acks[1]: boot_us", func(b *wire.Heartbeat) { b.Acks[1].Process.Boot = 0 }},
		{"acks[1]: seq", func(b *wire.Heartbeat) { b.Acks[1].Seq = 0 }},
		{"acks[1]: received_us", func(b *wire.Heartbeat) { b.Acks[1].ReceivedUS = 0 }},
		{"acks[1]: received_us", func(b *wire.Heartbeat) { b.Acks[1].ReceivedUS = wire.EndOfTime }},
		{"members[0]", members("eu west")},
		{"members[1]", members("a", "")},
		{"members[1]", members("b", "a")},
		{"members[2]", members("a", "b", "b")},
		{"ok", members("a", "a-", "a0", "a_", "aa")}, // ascending by byte
		{"weights[2]: a name", func(b *wire.Heartbeat) { b.Weights[2].Region = "" }},
		{"weights[2]: region \"r000\" is duplicated", func(b *wire.Heartbeat) { b.Weights[2].Region = "r000" }},
		{"weights[2]: weight", func(b *wire.Heartbeat) { b.Weights[2].Weight = 0 }},
		{"weights[2]: weight", func(b *wire.Heartbeat) { b.Weights[2].Weight = -1 }},
		{"weights[2]: weight", func(b *wire.Heartbeat) { b.Weights[2].Weight = wire.MaxWeight + 1 }},
		{"ok", func(b *wire.Heartbeat) { b.Weights[2] = quota.Weight{Region: "a", Weight: wire.MaxWeight} }}, // in any order
		{"unsent_ms", func(b *wire.Heartbeat) { b.UnsentMS = -1 }},
		{"unsent_ms", func(b *wire.Heartbeat) { b.UnsentMS = 1 << 62 }},
	}
	for _, row := range rows {
		b := beatOf(2, 3)
		row.change(b)
		got, err := wire.DecodeHeartbeat(wire.AppendHeartbeat(nil, b))
		wantRangeOr(t, got != nil, err, row.says)
	}
}

func TestSnapshotRequestOfNobodyIsRefused(t *testing.T) {
	got, err := wire.DecodeSnapshotRequest(wire.AppendSnapshotRequest(nil, &wire.SnapshotRequest{OwnState: true}))
	wantRangeOr(t, got != nil, err, "from: region")
}

func wantRangeOr(t *testing.T, decoded bool, err error, says string) {
	t.Helper()
	if says != "ok" {
		wantRefused(t, decoded, err, wire.ReasonRange, says)
		return
	}
	if err != nil {
		t.Errorf("just inside its range, and yet: %v", err)
	}
}
