package wire

import (
	"fmt"

	"github.com/regiond/regiond/quota"
)

// known returns a reader of the fields of one Heartbeat.
func (b *Heartbeat) known() func(f field) error {
	var from bool
	return func(f field) error {
		switch f.num {
		case beatFrom:
			return in("from", f.message(&from, processFields(&b.From)))
		case beatSeq:
			return f.uint(&b.Seq)
		case beatTime:
			return f.int(&b.TimeUS)
		case beatAcks:
			return decodeAck(f, &b.Acks)
		case beatMembers:
			return decodeName(f, "members", &b.Members)
		case beatTopology:
			return f.fixed(&b.Topology)
		case beatWeights:
			return decodeWeight(f, &b.Weights)
		case beatUnsent:
			return f.int(&b.UnsentMS)
		case beatLeaving:
			return f.flag(&b.Leaving)
		case beatFull:
			return f.flag(&b.Full)
		case beatKey:
			return f.fixed(&b.Key)
		}
		return nil
	}
}

func decodeAck(f field, into *[]Ack) error {
	if len(*into) == MaxAcks {
		return refuse(ReasonSize, "more than %d acks", MaxAcks)
	}
	var a Ack
	var seen, process bool
	err := f.message(&seen, func(f field) error {
		switch f.num {
		case ackProcess:
			return in("process", f.message(&process, processFields(&a.Process)))
		case ackSeq:
			return f.uint(&a.Seq)
		case ackReceived:
			return f.int(&a.ReceivedUS)
		}
		return nil
	})
	if err != nil {
		return in(fmt.Sprintf("acks[%d]", len(*into)), err)
	}
	*into = append(*into, a)
	return nil
}

// decodeName reads one of a list of regions.
func decodeName(f field, list string, into *[]string) error {
	if len(*into) == MaxRegions {
		return refuse(ReasonSize, "more than %d %s", MaxRegions, list)
	}
	var name string
	if err := f.text(&name); err != nil {
		return in(fmt.Sprintf("%s[%d]", list, len(*into)), err)
	}
	*into = append(*into, name)
	return nil
}

func decodeWeight(f field, into *[]quota.Weight) error {
	if len(*into) == MaxRegions {
		return refuse(ReasonSize, "more than %d weights", MaxRegions)
	}
	var w quota.Weight
	var seen bool
	err := f.message(&seen, func(f field) error {
		switch f.num {
		case weightRegion:
			return f.text(&w.Region)
		case weightWeight:
			return f.int(&w.Weight)
		}
		return nil
	})
	if err != nil {
		return in(fmt.Sprintf("weights[%d]", len(*into)), err)
	}
	*into = append(*into, w)
	return nil
}

// known reads the fields of one SnapshotRequest.
func (r *SnapshotRequest) known() func(f field) error {
	var from bool
	return func(f field) error {
		switch f.num {
		case requestFrom:
			return in("from", f.message(&from, processFields(&r.From)))
		case requestEcho:
			return f.flag(&r.OwnState)
		case requestMissing:
			return decodeName(f, "missing", &r.Missing)
		}
		return nil
	}
}
