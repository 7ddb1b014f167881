package wire

import (
	"encoding/binary"
	"fmt"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/regiond/regiond/quota"
)

// known returns a reader of the fields of one Usage.
func (u *Usage) known() func(f field) error {
	var from, chunk bool
	entries := 0
	return func(f field) error {
		switch f.num {
		case usageFrom:
			return in("from", f.message(&from, processFields(&u.From)))
		case usageSeq:
			return f.uint(&u.Seq)
		case usageTime:
			return f.int(&u.TimeUS)
		case usageOf:
			return f.text(&u.Origin)
		case usageOfTime:
			return f.int(&u.OriginTimeUS)
		case usageChunk:
			return in("chunk", f.message(&chunk, u.Chunk.known))
		case usageGroups:
			if len(u.Groups) == MaxGroups {
				return refuse(ReasonSize, "more than %d groups", MaxGroups)
			}
			g, err := decodeGroup(f, MaxEntries-entries)
			if err != nil {
				return in(fmt.Sprintf("groups[%d]", len(u.Groups)), err)
			}
			entries += len(g.IDs)
			u.Groups = append(u.Groups, g)
		}
		return nil
	}
}

func processFields(p *quota.Process) func(field) error {
	return func(f field) error {
		switch f.num {
		case processRegion:
			return f.text(&p.Region)
		case processInstance:
			return f.text(&p.Instance)
		case processBoot:
			return f.int(&p.Boot)
		}
		return nil
	}
}

func (c *Chunk) known(f field) error {
	switch f.num {
	case chunkDigest:
		return f.uint(&c.Snapshot)
	case chunkIndex:
		return f.uint32(&c.Index)
	case chunkCount:
		return f.uint32(&c.Count)
	}
	return nil
}

// decodeGroup reads a group of at most room rows.
func decodeGroup(f field, room int) (Group, error) {
	var g Group
	var seen bool
	var c columns
	err := f.message(&seen, func(f field) error {
		switch f.num {
		case groupLimit:
			return f.text(&g.Limit)
		case groupWindow:
			return f.int(&g.WindowUS)
		case groupBucketUS:
			return f.int(&g.BucketUS)
		case groupBucket:
			return f.int(&g.Bucket)
		case groupIDs:
			return in("ids", column(f, &c.ids))
		case groupGenerations:
			return in("generations", column(f, &c.epochs))
		case groupUnits:
			return in("units", column(f, &c.units))
		}
		return nil
	})
	if err != nil {
		return g, err
	}
	return g, c.decode(&g, room)
}

// columns are the bytes of a group's columns. They are decoded when all of the
// group is known: their lengths have to agree before anything is allocated, and
// epochs need the bucket.
type columns struct {
	ids, epochs, units []byte
}

func column(f field, into *[]byte) error {
	if *into != nil {
		return refuse(ReasonMalformed, "the column comes twice")
	}
	*into = f.data
	return f.is(protowire.BytesType)
}

func (c *columns) decode(g *Group, room int) error {
	n := len(c.ids) / 8
	if len(c.ids)%8 != 0 {
		return refuse(ReasonMalformed, "ids has %d bytes, not 8 for each", len(c.ids))
	}
	if n > room {
		return refuse(ReasonSize, "more than %d totals in the message", MaxEntries)
	}
	if e, u := countVarints(c.epochs), countVarints(c.units); e != n || u != n {
		return refuse(ReasonMalformed, "columns differ in length: %d ids, %d epochs, %d units", n, e, u)
	}
	if n == 0 {
		return nil
	}
	g.IDs = make([]uint64, n)
	for i := range g.IDs {
		g.IDs[i] = binary.LittleEndian.Uint64(c.ids[8*i:])
	}
	g.Generations, g.Units = make([]int64, n), make([]int64, n)
	if err := varints(g.Generations, c.epochs); err != nil {
		return in("generations", err)
	}
	// Sums that overflow wrap; each of them is a row, which check looks at.
	before := g.start()
	for i, v := range g.Generations {
		before += protowire.DecodeZigZag(uint64(v))
		g.Generations[i] = before
	}
	return in("units", varints(g.Units, c.units))
}

// countVarints counts the bytes that end a varint. Those of one that is cut off,
// or too long, varints refuses.
func countVarints(data []byte) int {
	n := 0
	for _, c := range data {
		if c < 0x80 {
			n++
		}
	}
	return n
}

// varints fills dst, of as many numbers as countVarints says, from data.
func varints(dst []int64, data []byte) error {
	for i := range dst {
		v, n := protowire.ConsumeVarint(data)
		if n < 0 {
			return refuse(ReasonMalformed, "row %d: %w", i, protowire.ParseError(n))
		}
		dst[i] = int64(v)
		data = data[n:]
	}
	if len(data) > 0 {
		return refuse(ReasonMalformed, "the column is cut off in row %d", len(dst))
	}
	return nil
}
