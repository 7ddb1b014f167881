package wire_test

import (
	"errors"
	"math"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/klauspost/compress/s2"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/regiond/regiond/quota"
	"github.com/regiond/regiond/sync/wire"
)

// Builders of messages that Append would never write.

func cat(parts ...[]byte) []byte { return slices.Concat(parts...) }

func number(num protowire.Number, v uint64) []byte {
	return protowire.AppendVarint(protowire.AppendTag(nil, num, protowire.VarintType), v)
}

func nested(num protowire.Number, data []byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(nil, num, protowire.BytesType), data)
}

func text(num protowire.Number, s string) []byte { return nested(num, []byte(s)) }

func envelope(body []byte) []byte { return cat(number(1, wire.Version), nested(2, body)) }

func packedEnvelope(packed []byte) []byte { return cat(number(1, wire.Version), nested(3, packed)) }

// head is the good beginning of a usage message or a heartbeat.
func head() []byte {
	from := cat(text(1, "eu-west"), text(2, "a"), number(3, midnight))
	return cat(nested(1, from), number(2, 1), number(3, midnight), number(8, 1)) // of changes, or how long they wait
}

func usage(fields ...[]byte) []byte { return envelope(nested(1, cat(head(), cat(fields...)))) }

func heartbeat(fields ...[]byte) []byte { return envelope(nested(2, cat(head(), cat(fields...)))) }

// group is a group with these fields after a good limit and bucket.
func group(fields ...[]byte) []byte {
	head := cat(text(1, "standard.burst"), number(2, minute), number(3, minute), number(4, bucket))
	return nested(6, cat(head, cat(fields...)))
}

// columns is a group of three columns.
func columns(ids, generations, units []byte) []byte {
	return group(nested(5, ids), nested(6, generations), nested(7, units))
}

// held is a group of good counters with these columns of gauges.
func held(ids, rows, sequences, units, left []byte) []byte {
	n := len(ids) / 8
	return group(nested(5, ids), nested(6, make([]byte, n)), nested(7, make([]byte, n)),
		nested(9, rows), nested(10, sequences), nested(11, units), nested(12, left))
}

// rows are three good columns of n rows.
func rows(n int) []byte { return columns(make([]byte, 8*n), make([]byte, n), make([]byte, n)) }

// claim is a field of bytes whose length is n, without the bytes.
func claim(num protowire.Number, n uint64) []byte {
	return protowire.AppendVarint(protowire.AppendTag(nil, num, protowire.BytesType), n)
}

// claim32 is a field of four bytes, where nothing in wire.proto has any.
func claim32(num protowire.Number) []byte {
	return protowire.AppendFixed32(protowire.AppendTag(nil, num, protowire.Fixed32Type), 1)
}

type badRow struct {
	name   string
	data   []byte
	reason wire.Reason
	says   string // part of what the error says, so that a row fails for its own reason
}

func malformedRows() []badRow {
	const malformed, size, rng = wire.ReasonMalformed, wire.ReasonSize, wire.ReasonRange
	good := wire.Append(nil, usageOf(1, 2))
	body := good[4:] // after the version and the head of the body
	one, two := make([]byte, 8), make([]byte, 16)
	tooLong := append(slices.Repeat([]byte{0xff}, 11), 1)
	big := make([]byte, 2*wire.MaxMessage)
	return []badRow{
		{"nothing", nil, malformed, "begin with a version"},
		{"text", []byte("hello, is this on?"), malformed, "begin with a version"},
		{"no version", nested(2, body), malformed, "begin with a version"},
		{"version last", cat(nested(2, body), number(1, wire.Version)), malformed, "begin with a version"},
		{"version as text", cat(text(1, "1"), nested(2, body)), malformed, "begin with a version"},
		{"version 0", cat(number(1, 0), nested(2, body)), wire.ReasonVersion, "version 0"},
		{"version 4, and no protobuf after it", []byte{0x08, 0x04, 0xff, 0xff}, wire.ReasonVersion, "version 4"},
		{"no body", number(1, wire.Version), malformed, "body_s2"},
		{"body of no kind", envelope(nil), malformed, "its body is <nil>"},
		{"body of a newer kind", envelope(nested(77, nil)), malformed, "its body is <nil>"},
		{"a heartbeat", wire.Append(nil, beatOf(1, 1)), malformed, "its body is *pb.Body_Heartbeat"},
		{"field number 0", cat(good, []byte{0x00, 0x00}), malformed, "invalid field number"},
		{"a group that never ends", cat(good, []byte{0x53}), malformed, "unexpected EOF"},
		{"ids not in eights", usage(columns(make([]byte, 9), []byte{0}, []byte{1})), malformed, "invalid wire-format"},
		{"ids not packed", usage(group(protowire.AppendFixed64(protowire.AppendTag(nil, 5, protowire.Fixed64Type), 1))), malformed, "1 ids, 0 generations"},
		{"more ids than units", usage(columns(two, []byte{0, 0}, []byte{1})), malformed, "2 ids, 2 generations, 1 units"},
		{"fewer generations", usage(columns(two, []byte{0}, []byte{1, 1})), malformed, "2 ids, 1 generations, 2 units"},
		{"more generations", usage(columns(one, []byte{0, 0}, []byte{1})), malformed, "1 ids, 2 generations, 1 units"},
		{"one word of growth", usage(group(nested(5, one), nested(6, []byte{0}), nested(7, []byte{1}), nested(8, one))), malformed, "1 of growth"},
		{"columns of another wire type", usage(group(nested(5, one), claim32(6), claim32(7))), malformed, "1 ids, 0 generations, 0 units"},
		{"a column cut off", usage(columns(one, []byte{0}, []byte{1, 0x80})), malformed, "invalid wire-format"},
		{"units of eleven bytes", usage(columns(one, []byte{0}, tooLong)), malformed, "invalid wire-format"},
		{"a generation of eleven bytes", usage(columns(one, tooLong, []byte{1})), malformed, "invalid wire-format"},
		{"an instance that is not UTF-8", usage(nested(1, text(2, "\xff"))), malformed, "UTF-8"},
		{"a usage that claims 1 GiB", envelope(claim(1, 1<<30)), malformed, "unexpected EOF"},
		{"a body that claims 2^63 bytes", cat(number(1, wire.Version), claim(2, 1<<63)), malformed, "unexpected EOF"},
		{"a column that claims 8·10^9 bytes", usage(group(claim(5, 8e9))), malformed, "unexpected EOF"},
		{"s2 of garbage", packedEnvelope([]byte{200, 1, 2, 3}), malformed, "body_s2"},
		{"s2 of nothing", packedEnvelope(nil), malformed, "body_s2"},
		{"s2 claiming 1 GiB", packedEnvelope(protowire.AppendVarint(nil, 1<<30)), size, "claims 1073741824 bytes"},
		{"s2 of 1 MiB of zeros", packedEnvelope(s2.Encode(nil, big)), size, "claims 1048576 bytes"},
		{"a message of 1 MiB", envelope(big), size, "the message has"},
		{"one counter too many", usage(rows(wire.MaxEntries + 1)), size, "ids"},
		{"one counter too many in two groups", usage(rows(wire.MaxEntries), rows(1)), size, "ids"},
		{"one group too many", usage(slices.Repeat(group(), wire.MaxGroups+1)), size, "groups"},
		{"groups of nothing", usage(slices.Repeat(nested(6, nil), wire.MaxMessage/4)), size, "groups"},
		{"one ack too many", wire.Append(nil, beatOf(wire.MaxAcks+1, 1)), size, "acks"},
		{"one member too many", heartbeat(slices.Repeat(text(5, "a"), quota.MaxRegions+1)), size, "members"},
		{"one weight too many", heartbeat(slices.Repeat(nested(7, nil), quota.MaxRegions+1)), size, "weights"},
		{"authors over and over", usage(slices.Repeat(nested(1, nil), wire.MaxMessage/4)), size, "from"},
		{"a generation that overflows back into range", usage(columns(two, // +2^62, then −2^62
			cat(protowire.AppendVarint(nil, 1<<63), protowire.AppendVarint(nil, 1<<63-1)), []byte{1, 1})), rng, "generations[0]"},
		{"a gauge without its units", usage(held(two, []byte{1}, []byte{1}, nil, []byte{1})), malformed, "1 held_rows, 1 held_sequences, 0 held_units, 1 held_left"},
		{"a gauge more than counters", usage(held(one, []byte{1, 1}, []byte{1, 1}, []byte{1, 1}, []byte{1, 1})), malformed, "held_rows[1] leads from 0 to 1 of 1 rows"},
		{"two gauges of one counter", usage(held(two, []byte{1, 0}, []byte{1, 1}, []byte{1, 1}, []byte{1, 1})), malformed, "held_rows[1] leads from 0 to 0"},
		{"a gauge of the row before the first", usage(held(two, []byte{0}, []byte{1}, []byte{1}, []byte{1})), malformed, "held_rows[0] leads from -1 to -1"},
		{"a gauge far away", usage(held(two, protowire.AppendVarint(nil, math.MaxUint32), []byte{1}, []byte{1}, []byte{1})), malformed, "held_rows[0] leads"},
		{"a gauge of no sequence", usage(held(two, []byte{1}, []byte{0}, []byte{1}, []byte{1})), malformed, "held_sequences must be"},
		{"gauges of no counters", usage(slices.Repeat(group(nested(9, make([]byte, wire.MaxEntries/2))), 3)), size, "held_rows"},
		{"units of 2^64−1", usage(columns(one, []byte{0}, protowire.AppendVarint(nil, math.MaxUint64))), rng, "units[0]"},
	}
}

func TestMalformedMessagesAreRefusedWithTheirReason(t *testing.T) {
	for _, row := range malformedRows() {
		t.Run(row.name, func(t *testing.T) {
			_, err := wire.Decode[*wire.Usage](row.data)
			wantRefused(t, err, row.reason, row.says)
		})
	}
}

func TestErrorLeadsToItsCause(t *testing.T) {
	if _, err := wire.Decode[*wire.Usage](packedEnvelope(nil)); !errors.Is(err, s2.ErrCorrupt) {
		t.Errorf("%v is not %v", err, s2.ErrCorrupt)
	}
}

func wantRefused(t *testing.T, err error, reason wire.Reason, says string) {
	t.Helper()
	if reasonOf(err) != reason || !strings.Contains(err.Error(), says) {
		t.Errorf("error %v\nwant reason %s and %q", err, reason, says)
	}
}

// A message that was cut off anywhere is malformed: nothing of it is used.
func TestEveryTruncationIsMalformed(t *testing.T) {
	for _, g := range goldens() {
		if g.want == wire.ReasonVersion || g.name == "newer_fields" {
			continue // refused at once; and whole without its last field
		}
		data := readGolden(t, filepath.Join("testdata", g.name+".golden"))
		for n := range data {
			for name, decode := range decoders {
				if _, err := decode(data[:n]); reasonOf(err) != wire.ReasonMalformed {
					t.Fatalf("%s: the first %d of %d bytes as a %s: %v", g.name, n, len(data), name, err)
				}
			}
		}
	}
}

// Whatever comes in, reading it costs a few times the largest message.
func TestNoMessageCostsMuchMemory(t *testing.T) {
	const most = 6 * wire.MaxMessage
	// As expensive as it gets: all compressed away, many small groups, and a mistake at
	// the very end.
	expensive := usageOf(wire.MaxGroups, wire.MaxEntries/wire.MaxGroups)
	for i := range expensive.Groups {
		clear(expensive.Groups[i].IDs)
		clear(expensive.Groups[i].Units)
	}
	expensive.Groups[wire.MaxGroups-1].Limit = "?"
	bombs := append(malformedRows(),
		badRow{name: "the most expensive", data: wire.Append(nil, expensive), reason: wire.ReasonRange},
		badRow{name: "texts over and over", data: usage(slices.Repeat(text(4, "us-east"), 50_000), group(nested(5, make([]byte, 8)))), reason: wire.ReasonMalformed},
		badRow{name: "groups in groups without end", data: cat(number(1, wire.Version), slices.Repeat([]byte{0x53}, wire.MaxMessage-2)), reason: wire.ReasonMalformed},
		badRow{name: "kinds in turn", data: envelope(slices.Repeat(cat(nested(1, nil), nested(2, nil)), wire.MaxMessage/8)), reason: wire.ReasonSize},
	)
	for _, row := range bombs {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, err := wire.Decode[*wire.Usage](row.data)
		runtime.ReadMemStats(&after)
		if got := after.TotalAlloc - before.TotalAlloc; got > most || reasonOf(err) != row.reason {
			t.Errorf("%s: %d bytes allocated, at most %d are fine; %v, want reason %s", row.name, got, most, err, row.reason)
		}
	}
}
