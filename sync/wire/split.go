package wire

// groupBytes and rowBytes are the most that a group without its rows, and a row, take in
// a message; the rest of one takes headBytes at most.
const (
	headBytes  = 1 << 10
	groupBytes = 200       // 127 of its limit, 4 numbers of up to 8, 8 tags and lengths
	rowBytes   = 8 + 8 + 7 // id, generation and units
	growthSize = 2         // of a row, in words
)

// Split divides groups among messages of at most MaxEntries counters each and of so many bytes,
// or MaxMessage with 0, in their order. A counter that takes more has a message of its own. A
// group that does not fit is cut between rows; columns are not copied. Groups without rows are
// left out, and without any row there is no message.
func Split(groups []Group, most int) [][]Group {
	if most < 1 || most > MaxMessage {
		most = MaxMessage
	}
	var messages [][]Group
	var message []Group
	entries, bytes := 0, headBytes
	for _, g := range groups {
		for len(g.IDs) > 0 {
			size := rowBytes
			if len(g.Growth) > 0 {
				size += 8 * growthSize
			}
			n := min(len(g.IDs), MaxEntries-entries, (most-bytes-groupBytes)/size)
			if len(message) == 0 {
				n = max(1, n)
			}
			if n <= 0 || len(message) == MaxGroups {
				messages = append(messages, message)
				message, entries, bytes = nil, 0, headBytes
				continue
			}
			part := g
			part.IDs, g.IDs = g.IDs[:n:n], g.IDs[n:]
			part.Generations, g.Generations = g.Generations[:n:n], g.Generations[n:]
			part.Units, g.Units = g.Units[:n:n], g.Units[n:]
			if m := growthSize * n; len(g.Growth) > 0 {
				part.Growth, g.Growth = g.Growth[:m:m], g.Growth[m:]
			}
			message = append(message, part)
			entries, bytes = entries+n, bytes+groupBytes+n*size
		}
	}
	if len(message) > 0 {
		messages = append(messages, message)
	}
	return messages
}
