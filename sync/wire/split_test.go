package wire_test

import (
	"cmp"
	"slices"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/encoding/protowire"
	"pgregory.net/rapid"

	"github.com/regiond/regiond/sync/wire"
)

// row is one total with all that its group says of it.
type row struct {
	limit                 string
	window, length, where int64
	id                    uint64
	epoch, units          int64
}

func rowsOf(groups []wire.Group) []row {
	var rows []row
	for _, g := range groups {
		for i, id := range g.IDs {
			rows = append(rows, row{g.Limit, g.WindowUS, g.BucketUS, g.Bucket, id, g.Generations[i], g.Units[i]})
		}
	}
	return rows
}

// inside returns the bytes of the first field num of a message, and how many it
// takes with its tag and length.
func inside(t rapid.TB, data []byte, num protowire.Number) (content []byte, size int) {
	t.Helper()
	for len(data) > 0 {
		got, typ, n := protowire.ConsumeField(data)
		if n < 0 {
			t.Fatal(protowire.ParseError(n))
		}
		if got == num && typ == protowire.BytesType {
			_, _, tag := protowire.ConsumeTag(data)
			content, _ = protowire.ConsumeBytes(data[tag:])
			return content, n
		}
		data = data[n:]
	}
	t.Fatalf("no field %d", num)
	return nil, 0
}

// The dumb way to know the size of a group is to write it.
func TestEncodedSizeIsWhatAppendWrites(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		g := anyGroup(60).Draw(t, "group") // too small to be compressed
		body, _ := inside(t, wire.AppendUsage(nil, &wire.Usage{Groups: []wire.Group{g}}), 2)
		usage, _ := inside(t, body, 1)
		if _, want := inside(t, usage, 6); wire.EncodedSize(&g) != want {
			t.Fatalf("EncodedSize %d, written it has %d bytes", wire.EncodedSize(&g), want)
		}
	})
}

func TestSplitKeepsEveryRowWithinTheCaps(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		groups := several(t, anyGroup(30), 8, "groups")
		maxEntries := rapid.IntRange(1, 60).Draw(t, "entries")
		maxBytes := rapid.IntRange(200, 1500).Draw(t, "bytes") // 200 hold any head and row
		before := rowsOf(groups)
		messages := wire.Split(groups, maxEntries, maxBytes)
		for i, m := range messages {
			size := 0
			for _, g := range m {
				size += wire.EncodedSize(&g)
			}
			if n := len(rowsOf(m)); n == 0 || n > maxEntries || size > maxBytes {
				t.Fatalf("message %d has %d totals in %d bytes, caps are %d and %d", i, n, size, maxEntries, maxBytes)
			}
			if i > 0 && roomLeft(messages[i-1], m[0], maxEntries, maxBytes) {
				t.Fatalf("message %d still had room for the first row of the next", i-1)
			}
		}
		if diff := gocmp.Diff(before, rowsOf(slices.Concat(messages...)), gocmp.AllowUnexported(row{})); diff != "" {
			t.Fatalf("rows (-before +after):\n%s", diff)
		}
	})
}

// roomLeft reports whether one more row, of next, would have fit in message with
// some bytes to spare: Split is allowed to be that imprecise.
func roomLeft(message []wire.Group, next wire.Group, maxEntries, maxBytes int) bool {
	const spare = 16 * 8 // heads that it takes to be of full length, of each group
	one := next
	one.IDs, one.Generations, one.Units = next.IDs[:1], next.Generations[:1], next.Units[:1]
	size := wire.EncodedSize(&one) + spare
	for _, g := range message {
		size += wire.EncodedSize(&g)
	}
	return len(rowsOf(message)) < maxEntries && size <= maxBytes
}

func TestSplitAtItsEdges(t *testing.T) {
	if got := wire.Split(nil, 0, 0); got != nil {
		t.Errorf("nothing became %d messages", len(got))
	}
	if got := wire.Split(make([]wire.Group, 3), 0, 0); got != nil {
		t.Errorf("groups without rows became %d messages", len(got))
	}
	// A row larger than the cap still goes, alone.
	if got := wire.Split(usageOf(2, 2).Groups, 0, 1); len(got) != 4 {
		t.Errorf("a cap of one byte: %d messages, want one for each of 4 rows", len(got))
	}
	// More groups than a message may have.
	if got := wire.Split(usageOf(wire.MaxGroups+1, 1).Groups, 0, 0); len(got) != 2 || len(got[0]) != wire.MaxGroups {
		t.Errorf("%d groups became %d messages, want 2 with the first full", wire.MaxGroups+1, len(got))
	}
	// Appending to a part must not write into the next.
	groups := usageOf(1, 4).Groups
	parts := wire.Split(groups, 2, 0)
	_ = append(parts[0][0].IDs, 0)
	if diff := gocmp.Diff(usageOf(1, 4).Groups, groups); diff != "" {
		t.Errorf("appending to a part changed the columns (-want +got):\n%s", diff)
	}
}

// What Split makes by default is read, also when each row is as long as it can be.
func TestSplitMessagesAreRead(t *testing.T) {
	u := usageOf(3, 30_000)
	for i := range u.Groups {
		for j := range u.Groups[i].Generations {
			u.Groups[i].Generations[j] = 1 + int64(j%2)*(wire.EndOfTime-1)
			u.Groups[i].Units[j] = 1 << 42
		}
	}
	total := 0
	for _, groups := range wire.Split(u.Groups, 0, 0) {
		u.Groups = groups
		got, err := wire.DecodeUsage(wire.AppendUsage(nil, u))
		if err != nil {
			t.Fatal(err)
		}
		total += len(rowsOf(got.Groups))
	}
	if total != 90_000 {
		t.Errorf("%d of 90000 rows arrived", total)
	}
}

func TestSortKeepsRowsTogether(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		g := anyGroup(30).Draw(t, "group")
		before := rowsOf([]wire.Group{g})
		g.Sort()
		if !slices.IsSorted(g.Generations) {
			t.Fatalf("generations are not ascending: %v", g.Generations)
		}
		after := rowsOf([]wire.Group{g})
		for _, rows := range [][]row{before, after} {
			slices.SortFunc(rows, func(a, b row) int {
				return cmp.Or(cmp.Compare(a.epoch, b.epoch), cmp.Compare(a.id, b.id), cmp.Compare(a.units, b.units))
			})
		}
		if diff := gocmp.Diff(before, after, gocmp.AllowUnexported(row{})); diff != "" {
			t.Fatalf("rows (-before +after):\n%s", diff)
		}
	})
}
