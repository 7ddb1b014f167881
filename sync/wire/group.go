package wire

import (
	"encoding/binary"
	"sort"

	"google.golang.org/protobuf/encoding/protowire"
)

// Sort orders the rows by epoch. Their order has no meaning, but neighbours that
// are close together are shorter: one or two bytes a row.
func (g *Group) Sort() {
	sort.Sort((*byGeneration)(g))
}

type byGeneration Group

func (g *byGeneration) Len() int           { return len(g.IDs) }
func (g *byGeneration) Less(i, j int) bool { return g.Generations[i] < g.Generations[j] }
func (g *byGeneration) Swap(i, j int) {
	g.IDs[i], g.IDs[j] = g.IDs[j], g.IDs[i]
	g.Generations[i], g.Generations[j] = g.Generations[j], g.Generations[i]
	g.Units[i], g.Units[j] = g.Units[j], g.Units[i]
}

// start is the beginning of the bucket, µs; the first epoch is relative to it.
func (g *Group) start() int64 {
	return g.Bucket * g.BucketUS
}

// rows is the part of g from row i to before row j; the columns are not copied.
func (g *Group) rows(i, j int) Group {
	part := *g
	part.IDs = g.IDs[i:j:j]
	part.Generations = g.Generations[i:j:j]
	part.Units = g.Units[i:j:j]
	return part
}

func appendGroup(b []byte, g *Group) []byte {
	b = appendText(b, groupLimit, g.Limit)
	b = appendUint(b, groupWindow, uint64(g.WindowUS))
	b = appendUint(b, groupBucketUS, uint64(g.BucketUS))
	b = appendUint(b, groupBucket, uint64(g.Bucket))
	if len(g.IDs) > 0 {
		b = protowire.AppendTag(b, groupIDs, protowire.BytesType)
		b = protowire.AppendVarint(b, uint64(8*len(g.IDs)))
		for _, id := range g.IDs {
			b = binary.LittleEndian.AppendUint64(b, id)
		}
	}
	var mark int
	if len(g.Generations) > 0 {
		b, mark = open(b, groupGenerations)
		before := g.start()
		for _, e := range g.Generations {
			b = protowire.AppendVarint(b, protowire.EncodeZigZag(e-before))
			before = e
		}
		b = closed(b, mark)
	}
	if len(g.Units) > 0 {
		b, mark = open(b, groupUnits)
		for _, u := range g.Units {
			b = protowire.AppendVarint(b, uint64(u))
		}
		b = closed(b, mark)
	}
	return b
}

// EncodedSize is how many bytes a group takes in a message that is not
// compressed, counted without encoding it.
func EncodedSize(g *Group) int {
	size := sizeHead(g)
	if n := len(g.IDs); n > 0 {
		size += protowire.SizeTag(groupIDs) + protowire.SizeBytes(8*n)
	}
	if len(g.Generations) > 0 {
		n, before := 0, g.start()
		for _, e := range g.Generations {
			n += sizeGeneration(e, before)
			before = e
		}
		size += protowire.SizeTag(groupGenerations) + protowire.SizeBytes(n)
	}
	if len(g.Units) > 0 {
		n := 0
		for _, u := range g.Units {
			n += protowire.SizeVarint(uint64(u))
		}
		size += protowire.SizeTag(groupUnits) + protowire.SizeBytes(n)
	}
	return protowire.SizeTag(usageGroups) + protowire.SizeBytes(size)
}

// sizeHead is the size of what stands before the columns.
func sizeHead(g *Group) int {
	size := 0
	if g.Limit != "" {
		size += protowire.SizeTag(groupLimit) + protowire.SizeBytes(len(g.Limit))
	}
	for _, v := range [...]int64{g.WindowUS, g.BucketUS, g.Bucket} {
		if v != 0 {
			size += 1 + protowire.SizeVarint(uint64(v)) // the three tags take a byte
		}
	}
	return size
}

func sizeGeneration(epoch, before int64) int {
	return protowire.SizeVarint(protowire.EncodeZigZag(epoch - before))
}
