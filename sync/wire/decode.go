package wire

import (
	"github.com/klauspost/compress/s2"
	"google.golang.org/protobuf/encoding/protowire"
)

// DecodeUsage reads a message that carries totals. An error is an *Error; what is
// returned without one is within all caps and ranges of this package, and shares
// no memory with data. Whatever data is, a few MaxMessage bytes are allocated at most.
func DecodeUsage(data []byte) (*Usage, error) {
	u := new(Usage)
	if err := decode(data, bodyUsage, u.known()); err != nil {
		return nil, err
	}
	if err := u.check(); err != nil {
		return nil, in("usage", err)
	}
	return u, nil
}

// DecodeHeartbeat reads a beat as DecodeUsage reads totals.
func DecodeHeartbeat(data []byte) (*Heartbeat, error) {
	b := new(Heartbeat)
	if err := decode(data, bodyHeartbeat, b.known()); err != nil {
		return nil, err
	}
	if err := b.check(); err != nil {
		return nil, in("heartbeat", err)
	}
	return b, nil
}

// DecodeSnapshotRequest reads a digest request as DecodeUsage reads totals.
func DecodeSnapshotRequest(data []byte) (*SnapshotRequest, error) {
	r := new(SnapshotRequest)
	if err := decode(data, bodySnapshotRequest, r.known()); err != nil {
		return nil, err
	}
	if err := checkProcess(&r.From); err != nil {
		return nil, in("snapshot_request: from", err)
	}
	if err := checkNames("missing", r.Missing); err != nil {
		return nil, in("snapshot_request", err)
	}
	return r, nil
}

// decode reads an envelope whose body is of one kind, and gives the fields of
// that kind to known.
func decode(data []byte, kind protowire.Number, known func(f field) error) error {
	body, err := openEnvelope(data)
	if err != nil {
		return in("envelope", err)
	}
	var seen bool
	err = eachField(body, func(f field) error {
		switch f.num {
		case kind:
			return in(kindName(kind), f.message(&seen, known))
		case bodyUsage, bodyHeartbeat, bodySnapshotRequest:
			return refuse(ReasonMalformed, "it is a %s, expected a %s", kindName(f.num), kindName(kind))
		}
		return nil
	})
	if err == nil && !seen {
		err = refuse(ReasonMalformed, "it is of no known kind, expected a %s", kindName(kind))
	}
	return in("body", err)
}

func kindName(num protowire.Number) string {
	switch num {
	case bodyUsage:
		return "usage"
	case bodyHeartbeat:
		return "heartbeat"
	default:
		return "snapshot_request"
	}
}

// openEnvelope returns the body of a message, decompressed.
func openEnvelope(data []byte) ([]byte, error) {
	if len(data) > MaxMessage {
		return nil, refuse(ReasonSize, "the message has %d bytes, at most %d are allowed", len(data), MaxMessage)
	}
	if num, typ, _ := protowire.ConsumeTag(data); num != envelopeVersion || typ != protowire.VarintType {
		return nil, refuse(ReasonMalformed, "it does not begin with a version")
	}
	var content field
	err := eachField(data, func(f field) error {
		switch f.num {
		case envelopeVersion:
			if f.value != Version {
				return refuse(ReasonVersion, "version %d, this process reads version %d", f.value, Version)
			}
			return f.is(protowire.VarintType)
		case envelopeBody, envelopeBodyS2:
			if content.num != 0 {
				return refuse(ReasonMalformed, "it has two bodies")
			}
			content = f
			return f.is(protowire.BytesType)
		}
		return nil
	})
	switch {
	case err != nil:
		return nil, err
	case content.num == 0:
		return nil, refuse(ReasonMalformed, "it has no body")
	case content.num == envelopeBodyS2:
		return decompress(content.data)
	}
	return content.data, nil
}

func decompress(packed []byte) ([]byte, error) {
	n, err := s2.DecodedLen(packed)
	if err != nil {
		return nil, refuse(ReasonMalformed, "body_s2: %w", err)
	}
	if n > MaxMessage {
		return nil, refuse(ReasonSize, "body_s2 claims %d bytes, at most %d are allowed", n, MaxMessage)
	}
	body, err := s2.Decode(nil, packed)
	if err != nil {
		return nil, refuse(ReasonMalformed, "body_s2: %w", err)
	}
	return body, nil
}
