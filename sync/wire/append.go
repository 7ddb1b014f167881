package wire

import (
	"slices"

	"github.com/klauspost/compress/s2"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/regiond/regiond/quota"
)

// AppendUsage appends u as a message. What u holds is not checked: a message
// beyond the caps, or with a value out of range, is refused where it arrives.
// It allocates only to make room: a buffer that is used again soon has enough.
func AppendUsage(dst []byte, u *Usage) []byte {
	dst, env := begin(dst)
	dst, body := open(dst, bodyUsage)
	dst = appendUsage(dst, u)
	return finish(closed(dst, body), env)
}

// AppendHeartbeat appends b as a message, unchecked like AppendUsage.
func AppendHeartbeat(dst []byte, b *Heartbeat) []byte {
	dst, env := begin(dst)
	dst, body := open(dst, bodyHeartbeat)
	dst = appendHeartbeat(dst, b)
	return finish(closed(dst, body), env)
}

// AppendSnapshotRequest appends r as a message, unchecked like AppendUsage.
func AppendSnapshotRequest(dst []byte, r *SnapshotRequest) []byte {
	dst, env := begin(dst)
	dst, body := open(dst, bodySnapshotRequest)
	dst = appendProcess(dst, &r.From)
	dst = appendFlag(dst, requestEcho, r.OwnState)
	dst = appendNames(dst, requestMissing, r.Missing)
	return finish(closed(dst, body), env)
}

// begin writes the head of an envelope and opens its body, see finish.
func begin(dst []byte) (_ []byte, mark int) {
	return open(appendUint(dst, envelopeVersion, Version), envelopeBody)
}

// finish closes the body that begin opened at mark, compressed when that is worth it.
func finish(dst []byte, mark int) []byte {
	body := dst[mark:]
	if len(body) <= compressAbove {
		return closed(dst, mark)
	}
	dst = slices.Grow(dst, s2.MaxEncodedLen(len(body)))
	body = dst[mark:]
	packed := s2.Encode(dst[len(dst):cap(dst)], body)
	if len(packed) >= len(body) {
		return closed(dst, mark)
	}
	// The few bytes before it overwrite the body, which is not needed any more.
	before := mark - protowire.SizeTag(envelopeBody)
	dst = protowire.AppendTag(dst[:before], envelopeBodyS2, protowire.BytesType)
	return protowire.AppendBytes(dst, packed)
}

// appendNames keeps also the empty ones, so that what is wrong is refused where it
// arrives.
func appendNames(b []byte, num protowire.Number, names []string) []byte {
	for _, name := range names {
		b = protowire.AppendTag(b, num, protowire.BytesType)
		b = protowire.AppendString(b, name)
	}
	return b
}

func appendUsage(b []byte, u *Usage) []byte {
	b = appendProcess(b, &u.From)
	b = appendUint(b, usageSeq, u.Seq)
	b = appendUint(b, usageTime, uint64(u.TimeUS))
	b = appendText(b, usageOf, u.Origin)
	if u.Chunk != (Chunk{}) {
		var mark int
		b, mark = open(b, usageChunk)
		b = appendUint(b, chunkDigest, u.Chunk.Snapshot)
		b = appendUint(b, chunkIndex, uint64(u.Chunk.Index))
		b = appendUint(b, chunkCount, uint64(u.Chunk.Count))
		b = closed(b, mark)
	}
	for i := range u.Groups {
		var mark int
		b, mark = open(b, usageGroups)
		b = closed(appendGroup(b, &u.Groups[i]), mark)
	}
	return appendUint(b, usageOfTime, uint64(u.OriginTimeUS)) // in order of the numbers, as others write it
}

func appendHeartbeat(b []byte, x *Heartbeat) []byte {
	b = appendProcess(b, &x.From)
	b = appendUint(b, beatSeq, x.Seq)
	b = appendUint(b, beatTime, uint64(x.TimeUS))
	var mark int
	for i := range x.Acks {
		b, mark = open(b, beatAcks)
		b = appendProcess(b, &x.Acks[i].Process)
		b = appendUint(b, ackSeq, x.Acks[i].Seq)
		b = appendUint(b, ackReceived, uint64(x.Acks[i].ReceivedUS))
		b = closed(b, mark)
	}
	b = appendNames(b, beatMembers, x.Members)
	b = appendFixed(b, beatTopology, x.Topology)
	for _, w := range x.Weights {
		b, mark = open(b, beatWeights)
		b = appendText(b, weightRegion, w.Region)
		b = appendUint(b, weightWeight, uint64(w.Weight))
		b = closed(b, mark)
	}
	b = appendUint(b, beatUnsent, uint64(x.UnsentMS))
	b = appendFlag(b, beatLeaving, x.Leaving)
	b = appendFlag(b, beatFull, x.Full)
	return appendFixed(b, beatKey, x.Key)
}

// appendProcess appends a process, which is the first field wherever it stands.
func appendProcess(b []byte, p *quota.Process) []byte {
	b, mark := open(b, usageFrom)
	b = appendText(b, processRegion, p.Region)
	b = appendText(b, processInstance, p.Instance)
	b = appendUint(b, processBoot, uint64(p.Boot))
	return closed(b, mark)
}

// appendUint, appendFixed, appendText and appendFlag leave zeros out, as proto3 does.
func appendUint(b []byte, num protowire.Number, v uint64) []byte {
	if v == 0 {
		return b
	}
	return protowire.AppendVarint(protowire.AppendTag(b, num, protowire.VarintType), v)
}

func appendFixed(b []byte, num protowire.Number, v uint64) []byte {
	if v == 0 {
		return b
	}
	return protowire.AppendFixed64(protowire.AppendTag(b, num, protowire.Fixed64Type), v)
}

func appendText(b []byte, num protowire.Number, s string) []byte {
	if s == "" {
		return b
	}
	return protowire.AppendString(protowire.AppendTag(b, num, protowire.BytesType), s)
}

func appendFlag(b []byte, num protowire.Number, set bool) []byte {
	return appendUint(b, num, protowire.EncodeBool(set))
}

// open begins a field whose length is not known yet: closed puts the length
// before what was appended since. That moves each byte once for every level it is
// in, four at most, which costs less than computing all lengths beforehand.
func open(b []byte, num protowire.Number) (_ []byte, mark int) {
	b = protowire.AppendTag(b, num, protowire.BytesType)
	return b, len(b)
}

func closed(b []byte, mark int) []byte {
	n := len(b) - mark
	size := protowire.SizeVarint(uint64(n))
	var room [10]byte
	b = append(b, room[:size]...)
	copy(b[mark+size:], b[mark:mark+n])
	protowire.AppendVarint(b[:mark], uint64(n))
	return b
}
