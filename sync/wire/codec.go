package wire

import (
	"cmp"

	"github.com/klauspost/compress/s2"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/regiond/regiond/quota"
	"github.com/regiond/regiond/quota/loan"
	"github.com/regiond/regiond/sync/wire/internal/pb"
)

// compressAbove is the size of a body, in bytes, from which compressing it is tried.
// Heartbeats and small changes are below, and would win nothing that a network notices.
const compressAbove = 2 << 10

// AppendUsage appends u as a message. What u holds is not checked: a message beyond the
// caps, or with a value out of range, is refused where it arrives.
func AppendUsage(dst []byte, u *Usage) []byte {
	m := &pb.Usage{
		From: fromProcess(u.From), Seq: u.Seq, TimeUs: u.TimeUS,
		Origin: u.Origin, OriginTimeUs: u.OriginTimeUS, Number: u.Number,
	}
	if c := &u.Chunk; c.is() {
		m.Chunk = &pb.Chunk{Snapshot: c.Snapshot, Index: c.Index, Count: c.Count, Since: c.Since, UpTo: c.UpTo}
		for _, a := range c.Answers {
			m.Chunk.Answers = append(m.Chunk.Answers, &pb.Answer{Process: fromProcess(a.Process), Request: a.Request})
		}
	}
	for _, g := range u.Groups {
		differences := make([]int64, len(g.Generations))
		before := g.Bucket * g.WindowUS
		for i, generation := range g.Generations {
			differences[i], before = generation-before, generation
		}
		m.Groups = append(m.Groups, &pb.Group{
			Limit: g.Limit, WindowUs: g.WindowUS, BucketUs: g.WindowUS, Bucket: g.Bucket,
			Ids: g.IDs, Generations: differences, Units: g.Units, Growth: g.Growth,
		})
	}
	return encode(dst, &pb.Body{Kind: &pb.Body_Usage{Usage: m}})
}

// DecodeUsage reads a message that carries counters. An error is an *Error; what is
// returned without one is within all caps and ranges of this package, and shares no
// memory with data. Whatever data is, a few MaxMessage bytes are allocated at most.
func DecodeUsage(data []byte) (*Usage, error) {
	m, err := decode(data, (*pb.Body).GetUsage)
	if err != nil {
		return nil, err
	}
	u := &Usage{
		From: toProcess(m.From), Seq: m.Seq, TimeUS: m.TimeUs,
		Origin: m.Origin, OriginTimeUS: m.OriginTimeUs, Number: m.Number,
		Chunk: Chunk{
			Snapshot: m.Chunk.GetSnapshot(), Index: m.Chunk.GetIndex(), Count: m.Chunk.GetCount(),
			Since: m.Chunk.GetSince(), UpTo: m.Chunk.GetUpTo(),
		},
	}
	for _, a := range m.Chunk.GetAnswers() {
		u.Chunk.Answers = append(u.Chunk.Answers, Answer{Process: toProcess(a.Process), Request: a.Request})
	}
	for i, g := range m.Groups {
		// A column of another wire type was counted, but is an unknown field, and dropped.
		if n := len(g.Ids); len(g.Generations) != n || len(g.Units) != n || len(g.Growth) != 0 && len(g.Growth) != 2*n {
			return nil, refuse(ReasonMalformed, "groups[%d]: columns of another type or length: %d ids, %d generations, %d units, %d of growth",
				i, n, len(g.Generations), len(g.Units), len(g.Growth))
		}
		if g.BucketUs != g.WindowUs {
			return nil, refuse(ReasonRange, "groups[%d]: bucket_us is %d, but the limit's buckets must be as long as its window, %d", i, g.BucketUs, g.WindowUs)
		}
		// Sums that overflow wrap; each of them is a row, which check looks at.
		before := g.Bucket * g.BucketUs
		for i, difference := range g.Generations {
			before += difference
			g.Generations[i] = before
		}
		u.Groups = append(u.Groups, Group{
			Limit: g.Limit, WindowUS: g.WindowUs, Bucket: g.Bucket,
			IDs: g.Ids, Generations: g.Generations, Units: g.Units, Growth: g.Growth,
		})
	}
	return inRange(u, u.check())
}

// AppendHeartbeat appends h as a message, unchecked like AppendUsage.
func AppendHeartbeat(dst []byte, h *Heartbeat) []byte {
	m := &pb.Heartbeat{
		From: fromProcess(h.From), Seq: h.Seq, TimeUs: h.TimeUS, Members: h.Members,
		Topology: h.Topology, UnsentMs: h.UnsentMS, Leaving: h.Leaving, Full: h.Full, Key: h.Key, Number: h.Number,
	}
	for _, a := range h.Acks {
		m.Acks = append(m.Acks, &pb.Ack{Process: fromProcess(a.Process), Seq: a.Seq, ReceivedUs: a.ReceivedUS})
	}
	for _, w := range h.Weights {
		m.Weights = append(m.Weights, &pb.Weight{Region: w.Region, Weight: w.Weight})
	}
	return encode(dst, &pb.Body{Kind: &pb.Body_Heartbeat{Heartbeat: m}})
}

// DecodeHeartbeat reads a heartbeat as DecodeUsage reads counters.
func DecodeHeartbeat(data []byte) (*Heartbeat, error) {
	m, err := decode(data, (*pb.Body).GetHeartbeat)
	if err != nil {
		return nil, err
	}
	h := &Heartbeat{
		From: toProcess(m.From), Seq: m.Seq, TimeUS: m.TimeUs, Members: m.Members,
		Topology: m.Topology, UnsentMS: m.UnsentMs, Leaving: m.Leaving, Full: m.Full, Key: m.Key, Number: m.Number,
	}
	for _, a := range m.Acks {
		h.Acks = append(h.Acks, Ack{Process: toProcess(a.Process), Seq: a.Seq, ReceivedUS: a.ReceivedUs})
	}
	for _, w := range m.Weights {
		h.Weights = append(h.Weights, quota.Weight{Region: w.Region, Weight: w.Weight})
	}
	return inRange(h, h.check())
}

// AppendSnapshotRequest appends r as a message, unchecked like AppendUsage.
func AppendSnapshotRequest(dst []byte, r *SnapshotRequest) []byte {
	m := &pb.SnapshotRequest{
		From: fromProcess(r.From), To: fromProcess(r.To), Request: r.Request, Since: r.Since,
		OwnState: r.OwnState, Missing: r.Missing,
	}
	return encode(dst, &pb.Body{Kind: &pb.Body_SnapshotRequest{SnapshotRequest: m}})
}

// DecodeSnapshotRequest reads a snapshot request as DecodeUsage reads counters.
func DecodeSnapshotRequest(data []byte) (*SnapshotRequest, error) {
	m, err := decode(data, (*pb.Body).GetSnapshotRequest)
	if err != nil {
		return nil, err
	}
	r := &SnapshotRequest{
		From: toProcess(m.From), To: toProcess(m.To), Request: m.Request, Since: m.Since,
		OwnState: m.OwnState, Missing: m.Missing,
	}
	return inRange(r, r.check())
}

// AppendLoans appends l as a message, unchecked like AppendUsage. Of the wants it writes
// Sealed, not Partition.
func AppendLoans(dst []byte, l *Loans) []byte {
	m := &pb.Loans{From: fromProcess(l.From), Seq: l.Seq, TimeUs: l.timeUS()}
	lenders := map[string]uint32{}
	for i := range l.Wants {
		w := &l.Wants[i]
		p := &pb.Want{
			Id: w.PartitionID, Epoch: w.Epoch, Time: w.Time - m.TimeUs, Need: w.Need, Lack: w.Lack, Urgent: w.Urgent,
			Share: w.Share, Ceil: w.Ceil, Slack: w.Slack, Rate: float32(w.Rate), Partition: w.Sealed,
		}
		for _, h := range w.Held {
			if _, ok := lenders[h.Peer]; !ok {
				lenders[h.Peer] = uint32(len(lenders))
				m.Lenders = append(m.Lenders, h.Peer)
			}
			p.Held = append(p.Held, &pb.Held{
				Lender: lenders[h.Peer], Epoch: h.ID.Epoch, Stamp: h.ID.Stamp - m.TimeUs,
				Units: h.Units, Back: h.Back, Until: h.Until - m.TimeUs,
			})
		}
		m.Wants = append(m.Wants, p)
	}
	for i := range l.Grants {
		g := &l.Grants[i]
		m.Grants = append(m.Grants, &pb.Grant{
			Id: g.PartitionID, Epoch: g.ID.Epoch, Stamp: g.ID.Stamp - m.TimeUs, Units: g.Units, New: g.New,
			RequestEpoch: g.Epoch, RequestTime: g.Time - m.TimeUs,
		})
	}
	for _, r := range l.Returns {
		m.Returns = append(m.Returns, &pb.Return{Id: r.PartitionID, Epoch: r.Loan.Epoch, Stamp: r.Loan.Stamp - m.TimeUs, Back: r.Back})
	}
	return encode(dst, &pb.Body{Kind: &pb.Body_Loans{Loans: m}})
}

// timeUS is what all times of the message are near to.
func (l *Loans) timeUS() int64 {
	switch {
	case len(l.Wants) > 0:
		return l.Wants[0].Time
	case len(l.Grants) > 0:
		return l.Grants[0].Time
	case len(l.Returns) > 0:
		return l.Returns[0].Loan.Stamp
	}
	return 0
}

// DecodeLoans reads what regions lend each other as DecodeUsage reads counters.
func DecodeLoans(data []byte) (*Loans, error) {
	m, err := decode(data, (*pb.Body).GetLoans)
	if err != nil {
		return nil, err
	}
	l := &Loans{From: toProcess(m.From), Seq: m.Seq}
	for _, p := range m.Wants {
		w := Want{PartitionID: p.Id, Sealed: p.Partition, Want: loan.Want{
			From: l.From.Region, Epoch: p.Epoch, Time: m.TimeUs + p.Time, Need: p.Need, Lack: p.Lack, Urgent: p.Urgent,
			Rate: float64(p.Rate), Share: p.Share, Ceil: p.Ceil, Slack: p.Slack,
		}}
		for _, h := range p.Held {
			if int(h.Lender) >= len(m.Lenders) {
				return nil, refuse(ReasonRange, "lender %d of %d", h.Lender, len(m.Lenders))
			}
			w.Held = append(w.Held, loan.Loan{
				Peer: m.Lenders[h.Lender], ID: loan.ID{Epoch: h.Epoch, Stamp: m.TimeUs + h.Stamp},
				Units: h.Units, Back: h.Back, Until: m.TimeUs + h.Until,
			})
		}
		l.Wants = append(l.Wants, w)
	}
	for _, p := range m.Grants {
		l.Grants = append(l.Grants, Grant{PartitionID: p.Id, Grant: loan.Grant{
			From: l.From.Region, ID: loan.ID{Epoch: p.Epoch, Stamp: m.TimeUs + p.Stamp}, Units: p.Units, New: p.New,
			Epoch: p.RequestEpoch, Time: m.TimeUs + p.RequestTime,
		}})
	}
	for _, p := range m.Returns {
		l.Returns = append(l.Returns, Return{PartitionID: p.Id, Loan: loan.ID{Epoch: p.Epoch, Stamp: m.TimeUs + p.Stamp}, Back: p.Back})
	}
	return inRange(l, l.check())
}

// AppendReset appends r as a message, unchecked like AppendUsage. It writes Sealed, not Tenant.
func AppendReset(dst []byte, r *Reset) []byte {
	m := &pb.Reset{From: fromProcess(r.From), Seq: r.Seq, Id: r.ID, Tenant: r.Sealed}
	for _, p := range r.To {
		m.To = append(m.To, fromProcess(p))
	}
	for _, c := range r.Cuts {
		m.Cuts = append(m.Cuts, &pb.Cut{Region: c.Region, UpTo: c.UpTo, State: uint32(c.State)})
	}
	return encode(dst, &pb.Body{Kind: &pb.Body_TenantReset{TenantReset: m}})
}

// DecodeReset reads a reset as DecodeUsage reads counters.
func DecodeReset(data []byte) (*Reset, error) {
	m, err := decode(data, (*pb.Body).GetTenantReset)
	if err != nil {
		return nil, err
	}
	r := &Reset{From: toProcess(m.From), Seq: m.Seq, ID: m.Id, Sealed: m.Tenant}
	for _, p := range m.To {
		r.To = append(r.To, toProcess(p))
	}
	for _, c := range m.Cuts {
		r.Cuts = append(r.Cuts, Cut{Region: c.Region, UpTo: c.UpTo, State: CutState(min(c.State, uint32(CutReturned)+1))})
	}
	return inRange(r, r.check())
}

// AppendTop appends t as a message, unchecked like AppendUsage.
func AppendTop(dst []byte, t *Top) []byte {
	return encode(dst, &pb.Body{Kind: &pb.Body_Top{Top: &pb.Top{From: fromProcess(t.From), Seq: t.Seq, Sealed: t.Sealed}}})
}

// DecodeTop reads a Top as DecodeUsage reads counters.
func DecodeTop(data []byte) (*Top, error) {
	m, err := decode(data, (*pb.Body).GetTop)
	if err != nil {
		return nil, err
	}
	t := &Top{From: toProcess(m.From), Seq: m.Seq, Sealed: m.Sealed}
	return inRange(t, cmp.Or(at("from", checkProcess(t.From)), checkSeq(t.Seq)))
}

func fromProcess(p quota.Process) *pb.Process {
	return &pb.Process{Region: p.Region, Instance: p.Instance, BootUs: p.Boot}
}

func toProcess(p *pb.Process) quota.Process {
	return quota.Process{Region: p.GetRegion(), Instance: p.GetInstance(), Boot: p.GetBootUs()}
}

// encode appends an envelope of body, compressed when that makes it smaller. A name that
// is not UTF-8, which no valid name is, leaves the body empty: that is refused where it
// arrives, as any other bad name is.
func encode(dst []byte, body *pb.Body) []byte {
	content, _ := proto.Marshal(body)
	field := protowire.Number(2) // Envelope.body
	if len(content) > compressAbove {
		if packed := s2.Encode(nil, content); len(packed) < len(content) {
			content, field = packed, 3 // Envelope.body_s2
		}
	}
	dst = protowire.AppendVarint(protowire.AppendTag(dst, 1, protowire.VarintType), Version)
	return protowire.AppendBytes(protowire.AppendTag(dst, field, protowire.BytesType), content)
}

// decode returns what a message holds, if that is of the wanted kind. It is within the
// caps but not yet in range.
func decode[M any](data []byte, kind func(*pb.Body) *M) (*M, error) {
	if err := checkEnvelope(data); err != nil {
		return nil, err
	}
	envelope := new(pb.Envelope)
	if err := unmarshal(data, envelope); err != nil {
		return nil, err
	}
	body := envelope.GetBody()
	if body == nil {
		packed := envelope.GetBodyS2()
		if size, err := s2.DecodedLen(packed); err == nil && size > MaxMessage {
			return nil, refuse(ReasonSize, "body_s2 claims %d bytes, at most %d are allowed", size, MaxMessage)
		}
		plain, err := s2.Decode(nil, packed)
		if err != nil {
			return nil, refuse(ReasonMalformed, "body_s2: %w", err)
		}
		body = new(pb.Body)
		if err := unmarshal(plain, body); err != nil {
			return nil, err
		}
	}
	m := kind(body)
	if m == nil {
		return nil, refuse(ReasonMalformed, "its body is %T, expected %T", body.Kind, m)
	}
	return m, nil
}

// checkEnvelope checks the size of a message and its version, which comes first: of another
// one, the rest may be anything.
func checkEnvelope(data []byte) error {
	if len(data) > MaxMessage {
		return refuse(ReasonSize, "the message has %d bytes, at most %d are allowed", len(data), MaxMessage)
	}
	num, typ, n := protowire.ConsumeTag(data)
	if num != 1 || typ != protowire.VarintType || len(data) == n {
		return refuse(ReasonMalformed, "it does not begin with a version")
	}
	if v, _ := protowire.ConsumeVarint(data[n:]); v != Version {
		return refuse(ReasonVersion, "version %d, this process reads version %d", v, Version)
	}
	return nil
}

// unmarshal reads a message that is within the caps. Fields of newer writers are skipped.
func unmarshal(data []byte, m proto.Message) error {
	if err := make(counts).check(m.ProtoReflect().Descriptor(), data); err != nil {
		return err
	}
	if err := (proto.UnmarshalOptions{DiscardUnknown: true}).Unmarshal(data, m); err != nil {
		return refuse(ReasonMalformed, "%w", err)
	}
	return nil
}
