package wire

import "google.golang.org/protobuf/encoding/protowire"

// frame is the most that tags and lengths add to a group in a message: its own
// and those of three columns.
const frame = 4 * (1 + 3)

// Split divides groups among messages of at most maxEntries totals and maxBytes
// bytes of encoded groups each, in their order; zero or more than the caps means
// MaxEntries and MaxGroupBytes. A group that does not fit is cut between rows;
// columns are not copied. Groups without rows are left out, and without any row
// there is no message. A single row is never left behind, however small maxBytes.
func Split(groups []Group, maxEntries, maxBytes int) [][]Group {
	if maxEntries < 1 || maxEntries > MaxEntries {
		maxEntries = MaxEntries
	}
	if maxBytes < 1 || maxBytes > MaxGroupBytes {
		maxBytes = MaxGroupBytes
	}
	var messages [][]Group
	var message []Group
	entries, bytes := maxEntries, maxBytes // that still fit in message
	flush := func() {
		messages = append(messages, message)
		message, entries, bytes = nil, maxEntries, maxBytes
	}
	for i := range groups {
		g := groups[i]
		for len(g.IDs) > 0 {
			n, size := fit(&g, entries, bytes)
			if n == 0 && len(message) > 0 {
				flush()
				continue
			}
			n = max(n, 1)
			message = append(message, g.rows(0, n))
			g = g.rows(n, len(g.IDs))
			entries, bytes = entries-n, bytes-size
			if len(message) == MaxGroups {
				flush()
			}
		}
	}
	if len(message) > 0 {
		flush()
	}
	return messages
}

// fit returns how many rows of g, from its first, fit in so many entries and
// bytes, and at most how many bytes they take.
func fit(g *Group, entries, bytes int) (rows, size int) {
	size = sizeHead(g) + frame
	before := g.start()
	for i := range min(len(g.IDs), entries) {
		row := 8 + sizeGeneration(g.Generations[i], before) + protowire.SizeVarint(uint64(g.Units[i]))
		if size+row > bytes {
			return i, size
		}
		size += row
		before = g.Generations[i]
	}
	return min(len(g.IDs), entries), size
}
