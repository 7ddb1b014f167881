package wire_test

import (
	"slices"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/regiond/regiond/quota"
	"github.com/regiond/regiond/sync/wire"
)

// row is one counter with all properties of its group.
type row struct {
	limit             string
	window, where     int64
	id                uint64
	generation, units int64
	growth            [2]uint64
	gauge             wire.Gauge
}

func rowsOf(groups []wire.Group) []row {
	var rows []row
	for _, g := range groups {
		for i, id := range g.IDs {
			r := row{limit: g.Limit, window: g.WindowUS, where: g.Bucket, id: id, generation: g.Generations[i], units: g.Units[i]}
			if len(g.Growth) > 0 {
				r.growth = [2]uint64(g.Growth[2*i:])
			}
			if len(g.Gauges) > 0 {
				r.gauge = g.Gauges[i]
			}
			rows = append(rows, r)
		}
	}
	return rows
}

func TestSplitKeepsEveryRowWithinTheLimit(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		groups := rapid.SliceOfN(anyGroup(30), 0, 8).Draw(t, "groups")
		most := rapid.IntRange(1, 4000).Draw(t, "most")
		messages := wire.Split(groups, most)
		for i, m := range messages {
			n := len(rowsOf(m))
			if size := len(wire.Append(nil, &wire.Usage{Groups: m})); n == 0 || size > most && n > 1 {
				t.Fatalf("message %d of %d has %d counters and %d bytes, of %d", i, len(messages), n, size, most)
			}
		}
		if diff := gocmp.Diff(rowsOf(groups), rowsOf(slices.Concat(messages...)), gocmp.AllowUnexported(row{})); diff != "" {
			t.Fatalf("rows (-before +after):\n%s", diff)
		}
	})
}

func TestSplitAtItsEdges(t *testing.T) {
	if got := wire.Split(make([]wire.Group, 3), 0); got != nil {
		t.Errorf("groups without rows became %d messages", len(got))
	}
	if got := wire.Split(usageOf(wire.MaxGroups+1, 1).Groups, 0); len(got) != 2 || len(got[0]) != wire.MaxGroups {
		t.Errorf("%d groups became %d messages, want 2 with the first full", wire.MaxGroups+1, len(got))
	}
	// Appending to a part must not write into the next.
	groups := usageOf(1, 4).Groups
	parts := wire.Split(groups, 1)
	_ = append(parts[0][0].IDs, 0)
	if diff := gocmp.Diff(usageOf(1, 4).Groups, groups); diff != "" {
		t.Errorf("appending to a part changed the columns (-want +got):\n%s", diff)
	}
}

// What Split makes is read, also when each row and each limit is as long as it can be.
func TestSplitMessagesAreRead(t *testing.T) {
	for _, groups := range []int{3, 2 * wire.MaxGroups} {
		u := usageOf(groups, 90_000/groups)
		for i := range u.Groups {
			g := &u.Groups[i]
			g.Limit = string(slices.Repeat([]byte("a"), 63)) + "." + string(slices.Repeat([]byte("b"), 63))
			g.WindowUS, g.Bucket = month, (wire.EndOfTime-1)/month
			for j := range g.Generations {
				g.Generations[j] = 1 + int64(j%2)*(wire.EndOfTime-1)
				g.Units[j] = 1 << 42
				if groups == 3 {
					g.Growth = append(g.Growth, 1<<63, 1<<63)
				}
				g.Gauges = append(g.Gauges, wire.Gauge{Sequence: wire.EndOfTime, Units: quota.MaxUnits, LeftUS: quota.MaxTTL.Microseconds()})
			}
		}
		want, got := len(rowsOf(u.Groups)), 0
		for _, u.Groups = range wire.Split(u.Groups, 0) {
			m, err := wire.Decode[*wire.Usage](wire.Append(nil, u))
			if err != nil {
				t.Fatal(err)
			}
			got += len(rowsOf(m.Groups))
		}
		if got != want {
			t.Errorf("%d of %d rows arrived", got, want)
		}
	}
}

// Whatever its rows are, a group arrives as it was sent.
func TestGroupsCross(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		u := usageOf(0, 0)
		u.Groups = []wire.Group{anyGroup(200).Draw(t, "group")}
		before := []byte("before")
		data := wire.Append(slices.Clone(before), u)
		got, err := wire.Decode[*wire.Usage](data[len(before):])
		clear(data) // of which got keeps nothing
		if diff := gocmp.Diff(u, got); err != nil || diff != "" {
			t.Fatalf("error %v, -sent +arrived:\n%s", err, diff)
		}
	})
}
