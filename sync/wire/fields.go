package wire

import (
	"google.golang.org/protobuf/encoding/protowire"
)

// The numbers of wire.proto.
const (
	envelopeVersion protowire.Number = 1
	envelopeBody    protowire.Number = 2
	envelopeBodyS2  protowire.Number = 3

	bodyUsage           protowire.Number = 1
	bodyHeartbeat       protowire.Number = 2
	bodySnapshotRequest protowire.Number = 3

	processRegion   protowire.Number = 1
	processInstance protowire.Number = 2
	processBoot     protowire.Number = 3

	usageFrom   protowire.Number = 1
	usageSeq    protowire.Number = 2
	usageTime   protowire.Number = 3
	usageOf     protowire.Number = 4
	usageChunk  protowire.Number = 5
	usageGroups protowire.Number = 6
	usageOfTime protowire.Number = 7

	chunkDigest protowire.Number = 1
	chunkIndex  protowire.Number = 2
	chunkCount  protowire.Number = 3

	groupLimit       protowire.Number = 1
	groupWindow      protowire.Number = 2
	groupBucketUS    protowire.Number = 3
	groupBucket      protowire.Number = 4
	groupIDs         protowire.Number = 5
	groupGenerations protowire.Number = 6
	groupUnits       protowire.Number = 7

	beatFrom     protowire.Number = 1
	beatSeq      protowire.Number = 2
	beatTime     protowire.Number = 3
	beatAcks     protowire.Number = 4
	beatMembers  protowire.Number = 5
	beatTopology protowire.Number = 6
	beatWeights  protowire.Number = 7
	beatUnsent   protowire.Number = 8
	beatLeaving  protowire.Number = 9
	beatFull     protowire.Number = 10
	beatKey      protowire.Number = 11

	ackProcess  protowire.Number = 1
	ackSeq      protowire.Number = 2
	ackReceived protowire.Number = 3

	weightRegion protowire.Number = 1
	weightWeight protowire.Number = 2

	requestFrom    protowire.Number = 1
	requestEcho    protowire.Number = 2
	requestMissing protowire.Number = 3
)

// maxText is the most bytes of any text in a message.
const maxText = MaxInstance

// field is one field of a message as it came.
type field struct {
	num   protowire.Number
	typ   protowire.Type
	value uint64 // of a varint or fixed64
	data  []byte // of bytes, text or an embedded message; not copied
}

// eachField calls known with every field of a message, in their order, until one
// is refused. A field that known does not know it leaves alone.
func eachField(data []byte, known func(f field) error) error {
	for len(data) > 0 {
		num, typ, n := protowire.ConsumeTag(data)
		if n < 0 {
			return refuse(ReasonMalformed, "no tag of a field: %w", protowire.ParseError(n))
		}
		data = data[n:]
		f := field{num: num, typ: typ}
		switch typ {
		case protowire.VarintType:
			f.value, n = protowire.ConsumeVarint(data)
		case protowire.Fixed64Type:
			f.value, n = protowire.ConsumeFixed64(data)
		case protowire.BytesType:
			f.data, n = protowire.ConsumeBytes(data)
		default:
			n = protowire.ConsumeFieldValue(num, typ, data)
		}
		if n < 0 {
			return refuse(ReasonMalformed, "field %d: %w", num, protowire.ParseError(n))
		}
		data = data[n:]
		if err := known(f); err != nil {
			return err
		}
	}
	return nil
}

func (f field) is(typ protowire.Type) error {
	if f.typ == typ {
		return nil
	}
	return refuse(ReasonMalformed, "field %d has wire type %d, expected %d", f.num, f.typ, typ)
}

func (f field) fixed(into *uint64) error {
	*into = f.value
	return f.is(protowire.Fixed64Type)
}

func (f field) uint(into *uint64) error {
	*into = f.value
	return f.is(protowire.VarintType)
}

// int is for a number that is never negative; one that does not fit becomes
// negative, which no check accepts.
func (f field) int(into *int64) error {
	*into = int64(f.value)
	return f.is(protowire.VarintType)
}

func (f field) uint32(into *uint32) error {
	if f.value > 1<<32-1 {
		return refuse(ReasonRange, "field %d is %d, too much for 32 bits", f.num, f.value)
	}
	*into = uint32(f.value)
	return f.is(protowire.VarintType)
}

func (f field) flag(into *bool) error {
	*into = f.value != 0
	return f.is(protowire.VarintType)
}

func (f field) text(into *string) error {
	if len(f.data) > maxText {
		return refuse(ReasonRange, "field %d is a text of %d bytes, at most %d are allowed", f.num, len(f.data), maxText)
	}
	*into = string(f.data)
	return f.is(protowire.BytesType)
}

// message reads an embedded message that must not have come before.
func (f field) message(seen *bool, known func(f field) error) error {
	if *seen {
		return refuse(ReasonMalformed, "field %d comes twice", f.num)
	}
	*seen = true
	if err := f.is(protowire.BytesType); err != nil {
		return err
	}
	return eachField(f.data, known)
}
