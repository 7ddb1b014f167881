package wire_test

import (
	"bytes"
	"encoding/hex"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/regiond/regiond/quota"
	"github.com/regiond/regiond/sync/wire"
	"github.com/regiond/regiond/test/golden"
)

// sample is one message as it is on the wire, for ever: processes of different versions
// meet every change here.
type sample struct {
	name string
	what string // the comment of the file
	data []byte
	want any // what it decodes to, or the wire.Reason why it does not
	// packed: s2 may choose other bytes for the same body in another release or on another
	// processor, so only the meaning is fixed.
	packed bool
}

func goldens() []sample {
	changes := usageOf(2, 2)
	changes.Groups[1].Generations[0] = changes.Groups[1].Bucket*minute + 1 // one after the start, then a day before
	changes.Groups[1].Generations[1] = midnight - 86_400_000_000
	chunk := usageOf(1, 3)
	chunk.Number, chunk.Chunk = 0, wire.Chunk{
		Snapshot: 9, Index: 1, Count: 2, Since: 3, UpTo: 7,
		Answers: []wire.Answer{{Process: process("ap-south"), Request: 5}, {Process: process("us-east"), Request: 1}},
	}
	empty := usageOf(0, 0)
	empty.Number, empty.Chunk = 0, wire.Chunk{Snapshot: 1, Count: 1}
	held := usageOf(2, 4)
	held.Groups[1].Gauges = []wire.Gauge{1: {Sequence: 41, Units: 60, LeftUS: 119_000_000}, 3: {Sequence: 7}}
	periods := withPeriods(usageOf(2, 2))
	returned := usageOf(1, 1)
	returned.Origin = "us-east"
	forwarded := usageOf(1, 1)
	forwarded.Origin, forwarded.OriginTimeUS = "us-east", forwarded.TimeUS-minute
	leaving := beatOf(0, 0)
	leaving.Leaving, leaving.Full, leaving.Topology, leaving.UnsentMS = true, true, 0, 0
	keyed := beatOf(1, 0)
	keyed.Key = wire.NewKey(nil, "prod").Fingerprint()
	request := &wire.SnapshotRequest{From: process("ap-south"), To: process("eu-west"), Request: 5, Since: 3, OwnState: true, Missing: []string{"eu-west", "us-east"}}
	wants := &wire.Loans{Head: wire.Head{From: process("eu-west"), Seq: 44}, Wants: []wire.Want{wantOf(1, 2), wantOf(2, 0)}}
	wants.Wants[1].Sealed = []byte("not looked at here")
	large := &wire.Loans{Head: wire.Head{From: process("eu-west"), Seq: 49}, Wants: []wire.Want{wantOf(1, 0)}}
	large.Wants[0].Burnt, large.Wants[0].Cost = true, 25
	monthly := &wire.Loans{Head: wire.Head{From: process("eu-west"), Seq: 46}, Wants: []wire.Want{wantOf(1, 0)}, Grants: []wire.Grant{grantOf(1)}}
	monthly.Wants[0].Period, monthly.Grants[0].Period = 2023*12+11, 2023*12+11
	grants := &wire.Loans{Head: wire.Head{From: process("eu-west"), Seq: 45}, Grants: []wire.Grant{grantOf(1), grantOf(2)}, Returns: []wire.Return{returnOf(3)}}
	grants.Grants[0].New = true
	future := append([]byte{0x08, wire.Version + 1}, wire.Append(nil, request)[2:]...)
	deletion := &wire.Reset{Head: wire.Head{From: process("eu-west"), Seq: 46}, ID: 0x0123_4567_89ab_cdef, Sealed: []byte("not looked at here"), To: []quota.Process{process("us-east"), process("ap-south")}}
	deleted := &wire.Reset{Head: wire.Head{From: process("us-east"), Seq: 47}, ID: 7, Sealed: []byte("nor here"), Cuts: []wire.Cut{
		{Region: "us-east", UpTo: midnight, State: wire.CutDeleted}, {Region: "ap-south", UpTo: midnight + 1},
	}}
	top := &wire.Top{Head: wire.Head{From: process("eu-west"), Seq: 48}, Sealed: []byte("not looked at here either")}
	overrides := &wire.Overrides{Head: wire.Head{From: process("eu-west"), Seq: 50}, Sealed: []byte("nor at this")}
	return []sample{
		{"overrides", "What a tenant has, sealed.", wire.Append(nil, overrides), overrides, false},
		{"usage_changes", "Two limits with two changed counters each.", wire.Append(nil, changes), changes, false},
		{"usage_chunk", "The second of two chunks of what changed after number 3, which answers two requests.", wire.Append(nil, chunk), chunk, false},
		{"usage_held", "Two limits with four counters each; of two under the second, open reservations hold or held units.", wire.Append(nil, held), held, false},
		{"usage_periods", "A limit with two changed counters of a minute, and one with two of a month.", wire.Append(nil, periods), periods, false},
		{"usage_empty_snapshot", "The snapshot of a region that has admitted nothing.", wire.Append(nil, empty), empty, false},
		{"usage_handed_back", "A counter of us-east, as eu-west knows it.", wire.Append(nil, returned), returned, false},
		{"usage_forwarded", "A counter of us-east, whose clock is a minute behind, as eu-west knows it.", wire.Append(nil, forwarded), forwarded, false},
		{"usage_compressed", "100 limits with three changed counters each, as an s2 block.", wire.Append(nil, usageOf(100, 3)), usageOf(100, 3), true},
		{"heartbeat", "A heartbeat that acknowledges two processes and has three weights.", wire.Append(nil, beatOf(2, 3)), beatOf(2, 3), false},
		{"heartbeat_leaving", "The last heartbeat of a process that is alone and short of memory.", wire.Append(nil, leaving), leaving, false},
		{"heartbeat_key", "A heartbeat with the fingerprint of its key.", wire.Append(nil, keyed), keyed, false},
		{"heartbeat_compressed", "A heartbeat with 100 acks, as an s2 block.", wire.Append(nil, beatOf(100, 0)), beatOf(100, 0), true},
		{"snapshot_request", "ap-south asks for everything, also for what is known of itself.", wire.Append(nil, request), request, false},
		{"loans_wants", "Two wants, one of which borrows twice, one of which names its partition.", wire.Append(nil, wants), wants, false},
		{"loans_want_cost", "A want for a cost of 25 units, of a region that has lost its share.", wire.Append(nil, large), large, false},
		{"loans_of_a_period", "A want and a grant of November 2023 under a limit with a calendar.", wire.Append(nil, monthly), monthly, false},
		{"loans_grants", "A new loan, one that was extended, and a return.", wire.Append(nil, grants), grants, false},
		{"reset", "Two processes are to delete the usage of a tenant.", wire.Append(nil, deletion), deletion, false},
		{"reset_answer", "The cuts of two regions.", wire.Append(nil, deleted), deleted, false},
		{"top", "What a process has counted, sealed.", wire.Append(nil, top), top, false},
		{"newer_fields", "A snapshot request with fields that nobody knows yet, at every level.", withNewerFields(request), request, false},
		{"future_version", "An envelope of version 4, whatever that will be.", future, wire.ReasonVersion, false},
	}
}

// withPeriods makes the last group one of a limit with a calendar: of November 2023, which began an hour before UTC's.
func withPeriods(u *wire.Usage) *wire.Usage {
	g := &u.Groups[len(u.Groups)-1]
	g.WindowUS, g.Bucket, g.EndsUS = month, 2023*12+11, midnight+month/2
	return u
}

// newerFields appends what a newer process may write: one unknown field of each
// wire type.
func newerFields(b []byte) []byte {
	const newer = 1000
	b = protowire.AppendVarint(protowire.AppendTag(b, newer, protowire.VarintType), 7)
	b = protowire.AppendFixed32(protowire.AppendTag(b, newer+1, protowire.Fixed32Type), 7)
	b = protowire.AppendFixed64(protowire.AppendTag(b, newer+2, protowire.Fixed64Type), 7)
	b = protowire.AppendString(protowire.AppendTag(b, newer+3, protowire.BytesType), "new")
	b = protowire.AppendTag(b, newer+4, protowire.StartGroupType)
	b = protowire.AppendVarint(protowire.AppendTag(b, 1, protowire.VarintType), 7)
	return protowire.AppendTag(b, newer+4, protowire.EndGroupType)
}

// withNewerFields writes a request with such fields in each of its messages.
func withNewerFields(r *wire.SnapshotRequest) []byte {
	from := newerFields(cat(text(1, r.From.Region), text(2, r.From.Instance), number(3, uint64(r.From.Boot))))
	to := newerFields(cat(text(1, r.To.Region), text(2, r.To.Instance), number(3, uint64(r.To.Boot))))
	request := newerFields(cat(nested(1, from), nested(2, to), number(3, r.Request), number(4, r.Since), number(5, 1), text(6, r.Missing[0]), text(6, r.Missing[1])))
	return newerFields(envelope(newerFields(nested(3, request))))
}

func TestGolden(t *testing.T) {
	for _, g := range goldens() {
		t.Run(g.name, func(t *testing.T) {
			file := filepath.Join("testdata", g.name+".golden")
			if golden.Updating() {
				writeGolden(t, file, g)
			}
			data := readGolden(t, file)
			if !g.packed && !bytes.Equal(data, g.data) {
				t.Errorf("%s is no longer what is written (-want +got, -update writes it anew):\n%s",
					file, cmp.Diff(hex.Dump(data), hex.Dump(g.data)))
			}
			if isPacked(data) != g.packed || isPacked(g.data) != g.packed {
				t.Errorf("compressed: %t in the file, %t now, want %t", isPacked(data), isPacked(g.data), g.packed)
			}
			// Every file is read as every kind: as its own it means want, as any other it
			// is refused.
			for name, decode := range decoders {
				got, err := decode(data)
				switch reason := reasonOf(err); {
				case reflect.TypeOf(got) == reflect.TypeOf(g.want):
					if diff := cmp.Diff(g.want, got); err != nil || diff != "" {
						t.Errorf("error %v, -want +got:\n%s", err, diff)
					}
				case g.want == wire.ReasonVersion:
					if reason != wire.ReasonVersion {
						t.Errorf("as a %s: %v, want reason version", name, err)
					}
				case reason != wire.ReasonMalformed:
					t.Errorf("as a %s: %v, want reason malformed", name, err)
				}
			}
		})
	}
}

// isPacked looks at the tag that follows the version.
func isPacked(data []byte) bool {
	num, _, _ := protowire.ConsumeTag(data[2:])
	return num == 3
}

// decoders read each kind of message.
var decoders = map[string]func([]byte) (wire.Message, error){
	"usage": decode[*wire.Usage], "heartbeat": decode[*wire.Heartbeat], "snapshot request": decode[*wire.SnapshotRequest],
	"loans": decode[*wire.Loans], "reset": decode[*wire.Reset], "top": decode[*wire.Top], "overrides": decode[*wire.Overrides],
}

func decode[M wire.Message](data []byte) (wire.Message, error) { return wire.Decode[M](data) }

// reasonOf returns why a message was refused, "" when it was not.
func reasonOf(err error) wire.Reason {
	var e *wire.Error
	if errors.As(err, &e) {
		return e.Reason
	}
	return ""
}

func writeGolden(t *testing.T, file string, g sample) {
	t.Helper()
	lines := slices.Collect(slices.Chunk([]byte(hex.EncodeToString(g.data)), 64))
	if err := os.WriteFile(file, slices.Concat([]byte("# "+g.what+"\n"), bytes.Join(lines, []byte("\n")), []byte("\n")), 0o644); err != nil {
		t.Fatal(err)
	}
}

func readGolden(t testing.TB, file string) []byte {
	t.Helper()
	content, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	_, digits, _ := strings.Cut(string(content), "\n") // after the comment
	data, err := hex.DecodeString(strings.ReplaceAll(digits, "\n", ""))
	if err != nil {
		t.Fatalf("%s: %v", file, err)
	}
	return data
}

// A message of the most of everything is read.
func TestLargestMessages(t *testing.T) {
	u, h := usageOf(wire.MaxGroups, wire.MaxEntries/wire.MaxGroups), beatOf(wire.MaxAcks, quota.MaxRegions)
	if got, err := wire.Decode[*wire.Usage](wire.Append(nil, u)); err != nil || !cmp.Equal(u, got) {
		t.Errorf("%d groups of %d rows: error %v, or they came back changed", len(u.Groups), len(u.Groups[0].IDs), err)
	}
	if got, err := wire.Decode[*wire.Heartbeat](wire.Append(nil, h)); err != nil || !cmp.Equal(h, got) {
		t.Errorf("%d acks and %d regions: error %v, or they came back changed", len(h.Acks), len(h.Members), err)
	}
}
