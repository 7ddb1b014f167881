package wire_test

import (
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/klauspost/compress/s2"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/regiond/regiond/sync/wire"
)

// Builders of messages that AppendUsage and its like would never write.

func cat(parts ...[]byte) []byte { return slices.Concat(parts...) }

func number(num protowire.Number, v uint64) []byte {
	return protowire.AppendVarint(protowire.AppendTag(nil, num, protowire.VarintType), v)
}

func nested(num protowire.Number, data []byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(nil, num, protowire.BytesType), data)
}

func text(num protowire.Number, s string) []byte { return nested(num, []byte(s)) }

func envelope(body []byte) []byte { return cat(number(1, 1), nested(2, body)) }

func packedEnvelope(packed []byte) []byte { return cat(number(1, 1), nested(3, packed)) }

// usage is an envelope of a usage message with these fields after a good head.
func usage(fields ...[]byte) []byte {
	from := cat(text(1, "eu-west"), text(2, "a"), number(3, midnight))
	head := cat(nested(1, from), number(2, 1), number(3, midnight))
	return envelope(nested(1, cat(head, cat(fields...))))
}

// group is a group with these fields after a good limit and bucket.
func group(fields ...[]byte) []byte {
	head := cat(text(1, "standard.burst"), number(2, minute), number(3, minute), number(4, bucket))
	return nested(6, cat(head, cat(fields...)))
}

func beatWith(fields ...[]byte) []byte {
	from := cat(text(1, "eu-west"), text(2, "a"), number(3, midnight))
	return envelope(nested(2, cat(nested(1, from), number(2, 1), number(3, midnight), cat(fields...))))
}

// rows are three good columns of n rows.
func rows(n int) []byte {
	return cat(nested(5, make([]byte, 8*n)), nested(6, make([]byte, n)), nested(7, make([]byte, n)))
}

// claim is a field of bytes that says it has n of them, followed by none.
func claim(num protowire.Number, n uint64) []byte {
	return protowire.AppendVarint(protowire.AppendTag(nil, num, protowire.BytesType), n)
}

type badRow struct {
	name   string
	data   []byte
	reason wire.Reason
	says   string // part of what the error says, so that a row fails for its own reason
}

func malformedRows() []badRow {
	const malformed, size, rng = wire.ReasonMalformed, wire.ReasonSize, wire.ReasonRange
	good := wire.AppendUsage(nil, usageOf(1, 2))
	body := good[4:] // after the version and the head of the body
	tooLong := slices.Repeat([]byte{0xff}, 11)
	big := make([]byte, 2*wire.MaxMessage)
	return []badRow{
		{"nothing", nil, malformed, "begin with a version"},
		{"text", []byte("hello, is this on?"), malformed, "begin with a version"},
		{"no body", number(1, 1), malformed, "no body"},
		{"no version", nested(2, body), malformed, "begin with a version"},
		{"version last", cat(nested(2, body), number(1, 1)), malformed, "begin with a version"},
		{"version as text", cat(text(1, "1"), nested(2, body)), malformed, "begin with a version"},
		{"version 0", cat(number(1, 0), nested(2, body)), wire.ReasonVersion, "version 0"},
		{"version 2, and no protobuf after it", []byte{0x08, 0x02, 0xff, 0xff}, wire.ReasonVersion, "version 2"},
		{"two versions", cat(good, number(1, 2)), wire.ReasonVersion, "version 2"},
		{"two bodies", cat(good, good[2:]), malformed, "two bodies"},
		{"a body and a compressed one", cat(good, nested(3, s2.Encode(nil, body))), malformed, "two bodies"},
		{"body as a number", cat(number(1, 1), number(2, 5)), malformed, "wire type"},
		{"body of no kind", envelope(nil), malformed, "no known kind"},
		{"body of a newer kind", envelope(nested(77, nil)), malformed, "no known kind"},
		{"two usages", envelope(cat(nested(1, nil), nested(1, nil))), malformed, "comes twice"},
		{"a usage and a beat", envelope(cat(nested(1, nil), nested(2, nil))), malformed, "it is a heartbeat"},
		{"field number 0", cat(good, []byte{0x00, 0x00}), malformed, "tag"},
		{"a group that never ends", cat(good, []byte{0x53}), malformed, "field 10"},
		{"author twice", usage(nested(1, text(1, "us-east"))), malformed, "comes twice"},
		{"chunk twice", usage(nested(5, nil), nested(5, nil)), malformed, "comes twice"},
		{"group as a number", usage(number(6, 1)), malformed, "groups[0]"},
		{"seq as text", usage(text(2, "1")), malformed, "wire type"},
		{"ids not in eights", usage(group(nested(5, make([]byte, 9)))), malformed, "9 bytes"},
		{"ids not packed", usage(group(protowire.AppendFixed64(protowire.AppendTag(nil, 5, protowire.Fixed64Type), 1))), malformed, "wire type"},
		{"a column twice", usage(group(rows(1), nested(5, make([]byte, 8)))), malformed, "column comes twice"},
		{"an empty column and another", usage(group(nested(6, nil), rows(1))), malformed, "column comes twice"},
		{"more ids than units", usage(group(nested(5, make([]byte, 16)), nested(6, []byte{0, 0}), nested(7, []byte{1}))), malformed, "2 ids, 2 epochs, 1 units"},
		{"fewer epochs", usage(group(nested(5, make([]byte, 16)), nested(6, []byte{0}), nested(7, []byte{1, 1}))), malformed, "2 ids, 1 epochs, 2 units"},
		{"more epochs", usage(group(nested(5, make([]byte, 8)), nested(6, []byte{0, 0}), nested(7, []byte{1}))), malformed, "1 ids, 2 epochs, 1 units"},
		{"ids alone", usage(group(nested(5, make([]byte, 16)))), malformed, "2 ids, 0 epochs, 0 units"},
		{"a column cut off", usage(group(nested(5, make([]byte, 8)), nested(6, []byte{0}), nested(7, []byte{1, 0x80}))), malformed, "cut off"},
		{"a number of eleven bytes", usage(group(nested(5, make([]byte, 8)), nested(6, []byte{0}), nested(7, cat(tooLong, []byte{1})))), malformed, "row 0"},
		{"an epoch of eleven bytes", usage(group(nested(5, make([]byte, 8)), nested(6, cat(tooLong, []byte{1})), nested(7, []byte{1}))), malformed, "generations: row 0"},
		{"a usage that claims 1 GiB", envelope(claim(1, 1<<30)), malformed, "unexpected EOF"},
		{"a body that claims 2^63 bytes", cat(number(1, 1), claim(2, 1<<63)), malformed, "unexpected EOF"},
		{"a column that claims 8·10^9 bytes", usage(group(claim(5, 8e9))), malformed, "unexpected EOF"},
		{"s2 of garbage", packedEnvelope([]byte{200, 1, 2, 3}), malformed, "body_s2"},
		{"s2 of nothing", packedEnvelope(nil), malformed, "body_s2"},
		{"s2 claiming 1 GiB", packedEnvelope(protowire.AppendVarint(nil, 1<<30)), size, "claims 1073741824 bytes"},
		{"s2 of 1 MiB of zeros", packedEnvelope(s2.Encode(nil, big)), size, "claims 1048576 bytes"},
		{"a message of 1 MiB", envelope(big), size, "the message has"},
		{"one total too many", usage(group(rows(wire.MaxEntries + 1))), size, "totals"},
		{"one total too many in two groups", usage(group(rows(wire.MaxEntries)), group(rows(1))), size, "groups[1]"},
		{"one group too many", usage(slices.Repeat(group(), wire.MaxGroups+1)), size, "groups"},
		{"a beat", wire.AppendHeartbeat(nil, beatOf(1, 1)), malformed, "it is a heartbeat"},
		{"a text of 256 bytes", usage(text(4, strings.Repeat("a", 256))), rng, "256 bytes"},
		{"a chunk's index above 32 bits", usage(nested(5, cat(number(1, 1), number(2, 1<<32), number(3, 1)))), rng, "32 bits"},
		{"an epoch that overflows back into range", usage(group(nested(5, make([]byte, 16)), // +2^62, then −2^62
			nested(6, cat(protowire.AppendVarint(nil, 1<<63), protowire.AppendVarint(nil, 1<<63-1))), nested(7, []byte{1, 1}))), rng, "generations[0]"},
		{"units of 2^64−1", usage(group(nested(5, make([]byte, 8)), nested(6, []byte{0}), nested(7, protowire.AppendVarint(nil, math.MaxUint64)))), rng, "units[0]"},
	}
}

func TestMalformedMessagesAreRefusedWithTheirReason(t *testing.T) {
	for _, row := range malformedRows() {
		t.Run(row.name, func(t *testing.T) {
			u, err := wire.DecodeUsage(row.data)
			wantRefused(t, u != nil, err, row.reason, row.says)
		})
	}
}

func TestMalformedHeartbeatsAreRefusedWithTheirReason(t *testing.T) {
	for _, row := range []badRow{
		{"one ack too many", wire.AppendHeartbeat(nil, beatOf(wire.MaxAcks+1, 1)), wire.ReasonSize, "acks"},
		{"one member too many", beatWith(slices.Repeat(text(5, "a"), wire.MaxRegions+1)), wire.ReasonSize, "members"},
		{"one weight too many", beatWith(slices.Repeat(nested(7, nil), wire.MaxRegions+1)), wire.ReasonSize, "weights"},
		{"an ack with two processes", beatWith(nested(4, cat(nested(1, nil), nested(1, nil)))), wire.ReasonMalformed, "acks[0]"},
		{"an ack as a number", beatWith(number(4, 1)), wire.ReasonMalformed, "acks[0]"},
		{"a member as a number", beatWith(number(5, 1)), wire.ReasonMalformed, "members[0]"},
		{"a weight as a number", beatWith(number(7, 1)), wire.ReasonMalformed, "weights[0]"},
		{"topology as a varint", beatWith(number(6, 1)), wire.ReasonMalformed, "wire type"},
		{"key as a varint", beatWith(number(11, 1)), wire.ReasonMalformed, "wire type"},
		{"leaving as text", beatWith(text(9, "yes")), wire.ReasonMalformed, "wire type"},
		{"a usage", wire.AppendUsage(nil, usageOf(1, 1)), wire.ReasonMalformed, "it is a usage"},
	} {
		t.Run(row.name, func(t *testing.T) {
			b, err := wire.DecodeHeartbeat(row.data)
			wantRefused(t, b != nil, err, row.reason, row.says)
		})
	}
}

func TestOfAScalarThatComesTwiceTheLastCounts(t *testing.T) {
	u, err := wire.DecodeUsage(usage(number(2, 7), text(4, "us-east"), text(4, "ap-south"), number(2, 9)))
	if err != nil || u.Seq != 9 || u.Origin != "ap-south" {
		t.Errorf("%+v, error %v", u, err)
	}
}

func TestErrorLeadsToItsCause(t *testing.T) {
	if _, err := wire.DecodeUsage(packedEnvelope(nil)); !errors.Is(err, s2.ErrCorrupt) {
		t.Errorf("%v is not %v", err, s2.ErrCorrupt)
	}
}

func wantRefused(t *testing.T, decoded bool, err error, reason wire.Reason, says string) {
	t.Helper()
	if decoded || reasonOf(err) != reason || !strings.Contains(err.Error(), says) {
		t.Errorf("decoded %t, error %v\nwant reason %s and %q", decoded, err, reason, says)
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
			for _, kind := range kinds() {
				if _, err := kind.decode(data[:n]); reasonOf(err) != wire.ReasonMalformed {
					t.Fatalf("%s: the first %d of %d bytes as a %s: %v", g.name, n, len(data), kind.name, err)
				}
			}
		}
	}
}

// Whatever comes in, reading it costs a few times the largest message.
func TestNoMessageCostsMuchMemory(t *testing.T) {
	const most = 6 * wire.MaxMessage
	// One that is as dear as it gets: all compressed away, many small groups, and a
	// mistake at the very end.
	dear := usageOf(wire.MaxGroups, wire.MaxEntries/wire.MaxGroups)
	for i := range dear.Groups {
		clear(dear.Groups[i].IDs)
		clear(dear.Groups[i].Units)
	}
	dear.Groups[wire.MaxGroups-1].Limit = "?"
	bombs := append(malformedRows(),
		badRow{name: "the dearest", data: wire.AppendUsage(nil, dear), reason: wire.ReasonRange},
		badRow{name: "texts over and over", data: usage(slices.Repeat(text(4, "us-east"), 50_000), group(nested(5, []byte{1}))), reason: wire.ReasonMalformed},
		badRow{name: "groups in groups without end", data: cat(number(1, 1), slices.Repeat([]byte{0x53}, wire.MaxMessage-2)), reason: wire.ReasonMalformed},
	)
	for _, row := range bombs {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, err := wire.DecodeUsage(row.data)
		runtime.ReadMemStats(&after)
		if got := after.TotalAlloc - before.TotalAlloc; got > most || reasonOf(err) != row.reason {
			t.Errorf("%s: %d bytes allocated, at most %d are fine; %v, want reason %s", row.name, got, most, err, row.reason)
		}
	}
}

func TestCheckAuthor(t *testing.T) {
	if err := wire.CheckAuthor("eu-west", process("eu-west")); err != nil {
		t.Error(err)
	}
	for _, subject := range []string{"us-east", "", "eu-west.", strings.Repeat("x", 1000)} {
		err := wire.CheckAuthor(subject, process("eu-west"))
		if reasonOf(err) != wire.ReasonAuthor || len(fmt.Sprint(err)) > 300 {
			t.Errorf("subject %.20q: %v, want a short error with reason author", subject, err)
		}
	}
}
