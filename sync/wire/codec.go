package wire

import (
	"fmt"
	"slices"

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

// Append appends m to dst. What m holds is not checked: a message beyond the caps, or with a
// value out of range, is refused where it arrives. Of what is sealed it writes Sealed alone.
//
// The body is compressed when that makes it smaller. A name that is not UTF-8, which no valid
// name is, leaves it empty: that is refused where it arrives, as any other bad name is.
func Append(dst []byte, m Message) []byte {
	content, _ := proto.Marshal(m.body())
	field := protowire.Number(2)                                    // Envelope.body
	if len(content) > compressAbove && len(content) <= MaxMessage { // or it would look as if it fits
		if packed := s2.Encode(nil, content); len(packed) < len(content) {
			content, field = packed, 3 // Envelope.body_s2
		}
	}
	dst = protowire.AppendVarint(protowire.AppendTag(dst, 1, protowire.VarintType), Version)
	return protowire.AppendBytes(protowire.AppendTag(dst, field, protowire.BytesType), content)
}

// Decode reads a message of one kind, as Decode[*Usage], or Decode[Message] of any. An error is
// an *Error; what is returned without one is within all caps and ranges of this package, and
// shares no memory with data. Whatever data is, a few MaxMessage bytes are allocated at most.
func Decode[M Message](data []byte) (none M, err error) {
	body, err := open(data)
	if err != nil {
		return none, err
	}
	read, err := parse(body)
	if err != nil {
		return none, err
	}
	m, ok := read.(M)
	if !ok {
		return none, Refuse(ReasonMalformed, "its body is %T, expected %T", body.Kind, none)
	}
	if err := m.check(); err != nil {
		return none, Refuse(ReasonRange, "%w", err)
	}
	return m, nil
}

// open returns the body of a message that is within the caps, but not yet in range.
func open(data []byte) (*pb.Body, error) {
	if err := checkEnvelope(data); err != nil {
		return nil, err
	}
	envelope := new(pb.Envelope)
	if err := unmarshal(data, envelope); err != nil {
		return nil, err
	}
	if body := envelope.GetBody(); body != nil {
		return body, nil
	}
	packed := envelope.GetBodyS2()
	if size, err := s2.DecodedLen(packed); err == nil && size > MaxMessage {
		return nil, Refuse(ReasonSize, "body_s2 claims %d bytes, at most %d are allowed", size, MaxMessage)
	}
	plain, err := s2.Decode(nil, packed)
	if err != nil {
		return nil, Refuse(ReasonMalformed, "body_s2: %w", err)
	}
	body := new(pb.Body)
	return body, unmarshal(plain, body)
}

// checkEnvelope checks the size of a message and its version, which comes first: of another
// one, the rest may be anything.
func checkEnvelope(data []byte) error {
	if len(data) > MaxMessage {
		return Refuse(ReasonSize, "the message has %d bytes, at most %d are allowed", len(data), MaxMessage)
	}
	num, typ, n := protowire.ConsumeTag(data)
	if num != 1 || typ != protowire.VarintType || len(data) == n {
		return Refuse(ReasonMalformed, "it does not begin with a version")
	}
	if v, _ := protowire.ConsumeVarint(data[n:]); v != Version {
		return Refuse(ReasonVersion, "version %d, this process reads version %d", v, Version)
	}
	return nil
}

// unmarshal reads a message that is within the caps. Fields of newer writers are skipped.
func unmarshal(data []byte, m proto.Message) error {
	if err := make(counts).check(m.ProtoReflect().Descriptor(), data); err != nil {
		return err
	}
	if err := (proto.UnmarshalOptions{DiscardUnknown: true}).Unmarshal(data, m); err != nil {
		return Refuse(ReasonMalformed, "%w", err)
	}
	return nil
}

// parse reads what the body methods write.
func parse(b *pb.Body) (Message, error) {
	switch k := b.Kind.(type) {
	case *pb.Body_Usage:
		return readUsage(k.Usage)
	case *pb.Body_Heartbeat:
		return readHeartbeat(k.Heartbeat), nil
	case *pb.Body_SnapshotRequest:
		return readRequest(k.SnapshotRequest), nil
	case *pb.Body_Loans:
		return readLoans(k.Loans)
	case *pb.Body_TenantReset:
		return readReset(k.TenantReset), nil
	case *pb.Body_Overrides:
		return &Overrides{Head: Head{toProcess(k.Overrides.From), k.Overrides.Seq}, Sealed: k.Overrides.Sealed}, nil
	case *pb.Body_Top:
		return &Top{Head: Head{toProcess(k.Top.From), k.Top.Seq}, Sealed: k.Top.Sealed}, nil
	}
	return nil, Refuse(ReasonMalformed, "its body is %T, which is no kind of message", b.Kind)
}

func (u *Usage) body() *pb.Body {
	m := &pb.Usage{
		From: fromProcess(u.From), Seq: u.Seq, TimeUs: u.TimeUS,
		Origin: u.Origin, OriginTimeUs: u.OriginTimeUS, Number: u.Number,
	}
	if c := &u.Chunk; c.is() {
		m.Chunk = &pb.Chunk{
			Snapshot: c.Snapshot, Index: c.Index, Count: c.Count, Since: c.Since, UpTo: c.UpTo,
			Answers: list(c.Answers, func(a Answer) *pb.Answer { return &pb.Answer{Process: fromProcess(a.Process), Request: a.Request} }),
		}
	}
	for _, g := range u.Groups {
		differences := make([]int64, len(g.Generations))
		before := beganAbout(g.Bucket, g.WindowUS, g.EndsUS)
		for i, generation := range g.Generations {
			differences[i], before = generation-before, generation
		}
		group := &pb.Group{
			Limit: g.Limit, WindowUs: g.WindowUS, BucketUs: g.WindowUS, Bucket: g.Bucket, EndsUs: g.EndsUS,
			Ids: g.IDs, Generations: differences, Units: g.Units, Growth: g.Growth,
		}
		writeGauges(group, g.Gauges)
		if g.EndsUS != 0 {
			m.Periods = append(m.Periods, group)
		} else {
			m.Groups = append(m.Groups, group)
		}
	}
	return &pb.Body{Kind: &pb.Body_Usage{Usage: m}}
}

// beganAbout is what the first generation of a group is a difference to. It wraps where a number is out of range.
func beganAbout(bucket, windowUS, endsUS int64) int64 {
	if endsUS != 0 {
		return endsUS - windowUS
	}
	return bucket * windowUS
}

// writeGauges writes those of them that are none zero.
func writeGauges(m *pb.Group, gauges []Gauge) {
	before := -1
	for row, g := range gauges {
		if g.Sequence > 0 {
			m.HeldRows, before = append(m.HeldRows, uint32(row-before)), row
			m.HeldSequences, m.HeldUnits = append(m.HeldSequences, g.Sequence), append(m.HeldUnits, g.Units)
			m.HeldLeft = append(m.HeldLeft, g.LeftUS)
		}
	}
}

// readGauges reads what writeGauges writes. The columns are within the caps.
func readGauges(m *pb.Group) ([]Gauge, error) {
	n, row := len(m.HeldRows), -1
	if len(m.HeldSequences) != n || len(m.HeldUnits) != n || len(m.HeldLeft) != n {
		return nil, fmt.Errorf("columns of different length: %d held_rows, %d held_sequences, %d held_units, %d held_left",
			n, len(m.HeldSequences), len(m.HeldUnits), len(m.HeldLeft))
	}
	if n == 0 {
		return nil, nil
	}
	gauges := make([]Gauge, len(m.Ids))
	for i, difference := range m.HeldRows {
		if row += int(difference); difference == 0 || row >= len(gauges) {
			return nil, fmt.Errorf("held_rows[%d] leads from %d to %d of %d rows", i, row-int(difference), row, len(gauges))
		}
		gauges[row] = Gauge{m.HeldSequences[i], m.HeldUnits[i], m.HeldLeft[i]}
		if gauges[row].Sequence < 1 { // which would be none
			return nil, within("held_sequences", gauges[row].Sequence, 1, EndOfTime)
		}
	}
	return gauges, nil
}

func readUsage(m *pb.Usage) (*Usage, error) {
	u := &Usage{
		Head: Head{toProcess(m.From), m.Seq}, TimeUS: m.TimeUs,
		Origin: m.Origin, OriginTimeUS: m.OriginTimeUs, Number: m.Number,
		Chunk: Chunk{
			Snapshot: m.Chunk.GetSnapshot(), Index: m.Chunk.GetIndex(), Count: m.Chunk.GetCount(),
			Since: m.Chunk.GetSince(), UpTo: m.Chunk.GetUpTo(),
			Answers: list(m.Chunk.GetAnswers(), func(a *pb.Answer) Answer { return Answer{toProcess(a.Process), a.Request} }),
		},
	}
	for i, g := range slices.Concat(m.Groups, m.Periods) {
		if isPeriod := i >= len(m.Groups); isPeriod != (g.EndsUs != 0) || isPeriod && len(g.Growth) > 0 {
			return nil, Refuse(ReasonRange, "groups[%d]: only periods have ends_us, which is %d, and they have no growth", i, g.EndsUs)
		}
		if g.BucketUs != g.WindowUs {
			return nil, Refuse(ReasonRange, "groups[%d]: bucket_us is %d, but the limit's buckets must be as long as its window, %d", i, g.BucketUs, g.WindowUs)
		}
		if n := len(g.Ids); len(g.Generations) != n || len(g.Units) != n || len(g.Growth) != 0 && len(g.Growth) != growthSize*n {
			return nil, Refuse(ReasonMalformed, "groups[%d]: columns of different length: %d ids, %d generations, %d units, %d of growth",
				i, n, len(g.Generations), len(g.Units), len(g.Growth))
		}
		// Sums that overflow wrap; each of them is a row, which check looks at.
		before := beganAbout(g.Bucket, g.BucketUs, g.EndsUs)
		for i, difference := range g.Generations {
			before += difference
			g.Generations[i] = before
		}
		gauges, err := readGauges(g)
		if err != nil {
			return nil, Refuse(ReasonMalformed, "groups[%d]: %w", i, err)
		}
		u.Groups = append(u.Groups, Group{
			Limit: g.Limit, WindowUS: g.WindowUs, Bucket: g.Bucket, EndsUS: g.EndsUs,
			IDs: g.Ids, Generations: g.Generations, Units: g.Units, Growth: g.Growth, Gauges: gauges,
		})
	}
	return u, nil
}

func (h *Heartbeat) body() *pb.Body {
	return &pb.Body{Kind: &pb.Body_Heartbeat{Heartbeat: &pb.Heartbeat{
		From: fromProcess(h.From), Seq: h.Seq, TimeUs: h.TimeUS, Members: h.Members,
		Topology: h.Topology, UnsentMs: h.UnsentMS, Leaving: h.Leaving, Full: h.Full, Key: h.Key, Number: h.Number,
		Acks: list(h.Acks, func(a Ack) *pb.Ack {
			return &pb.Ack{Process: fromProcess(a.Process), Seq: a.Seq, ReceivedUs: a.ReceivedUS}
		}),
		Weights: list(h.Weights, func(w quota.Weight) *pb.Weight { return &pb.Weight{Region: w.Region, Weight: w.Weight} }),
	}}}
}

func readHeartbeat(m *pb.Heartbeat) *Heartbeat {
	return &Heartbeat{
		Head: Head{toProcess(m.From), m.Seq}, TimeUS: m.TimeUs, Members: m.Members,
		Topology: m.Topology, UnsentMS: m.UnsentMs, Leaving: m.Leaving, Full: m.Full, Key: m.Key, Number: m.Number,
		Acks:    list(m.Acks, func(a *pb.Ack) Ack { return Ack{toProcess(a.Process), a.Seq, a.ReceivedUs} }),
		Weights: list(m.Weights, func(w *pb.Weight) quota.Weight { return quota.Weight{Region: w.Region, Weight: w.Weight} }),
	}
}

func (r *SnapshotRequest) body() *pb.Body {
	return &pb.Body{Kind: &pb.Body_SnapshotRequest{SnapshotRequest: &pb.SnapshotRequest{
		From: fromProcess(r.From), To: fromProcess(r.To), Request: r.Request, Since: r.Since, OwnState: r.OwnState, Missing: r.Missing,
	}}}
}

func readRequest(m *pb.SnapshotRequest) *SnapshotRequest {
	return &SnapshotRequest{
		From: toProcess(m.From), To: toProcess(m.To), Request: m.Request, Since: m.Since, OwnState: m.OwnState, Missing: m.Missing,
	}
}

func (l *Loans) body() *pb.Body {
	at := l.timeUS()
	m := &pb.Loans{From: fromProcess(l.From), Seq: l.Seq, TimeUs: at}
	lenders := map[string]uint32{}
	held := func(h loan.Loan) *pb.Held {
		if _, ok := lenders[h.Peer]; !ok {
			lenders[h.Peer] = uint32(len(lenders))
			m.Lenders = append(m.Lenders, h.Peer)
		}
		return &pb.Held{
			Lender: lenders[h.Peer], Epoch: h.ID.Epoch, Stamp: h.ID.Stamp - at, Units: h.Units, Back: h.Back, Until: h.Until - at,
		}
	}
	m.Wants = list(l.Wants, func(w Want) *pb.Want {
		return &pb.Want{
			Id: w.PartitionID, Epoch: w.Epoch, Time: w.Time - at, Need: w.Need, Lack: w.Lack, Urgent: w.Urgent, Share: w.Share,
			Ceil: w.Ceil, Slack: w.Slack, Rate: float32(w.Rate), Held: list(w.Held, held), Partition: w.Sealed, Burnt: w.Burnt, Cost: w.Cost, Period: w.Period,
		}
	})
	m.Grants = list(l.Grants, func(g Grant) *pb.Grant {
		return &pb.Grant{
			Id: g.PartitionID, Epoch: g.ID.Epoch, Stamp: g.ID.Stamp - at, Units: g.Units, New: g.New,
			RequestEpoch: g.Epoch, RequestTime: g.Time - at, MaxTtl: g.MaxTTL, Period: g.Period,
		}
	})
	m.Returns = list(l.Returns, func(r Return) *pb.Return {
		return &pb.Return{Id: r.PartitionID, Epoch: r.Loan.Epoch, Stamp: r.Loan.Stamp - at, Back: r.Back}
	})
	return &pb.Body{Kind: &pb.Body_Loans{Loans: m}}
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

func readLoans(m *pb.Loans) (_ *Loans, err error) {
	from, at := toProcess(m.From), m.TimeUs
	held := func(h *pb.Held) loan.Loan {
		lender := ""
		if int(h.Lender) < len(m.Lenders) {
			lender = m.Lenders[h.Lender]
		} else {
			err = Refuse(ReasonRange, "lender %d of %d", h.Lender, len(m.Lenders))
		}
		return loan.Loan{
			Peer: lender, ID: loan.ID{Epoch: h.Epoch, Stamp: at + h.Stamp}, Units: h.Units, Back: h.Back, Until: at + h.Until,
		}
	}
	l := &Loans{
		Head: Head{from, m.Seq},
		Wants: list(m.Wants, func(w *pb.Want) Want {
			return Want{PartitionID: w.Id, Sealed: w.Partition, Want: loan.Want{
				From: from.Region, Epoch: w.Epoch, Time: at + w.Time, Need: w.Need, Lack: w.Lack, Urgent: w.Urgent,
				Rate: float64(w.Rate), Share: w.Share, Ceil: w.Ceil, Slack: w.Slack, Burnt: w.Burnt, Cost: w.Cost,
				Held: list(w.Held, held), Period: w.Period,
			}}
		}),
		Grants: list(m.Grants, func(g *pb.Grant) Grant {
			return Grant{PartitionID: g.Id, Grant: loan.Grant{
				From: from.Region, ID: loan.ID{Epoch: g.Epoch, Stamp: at + g.Stamp}, Units: g.Units, New: g.New,
				Epoch: g.RequestEpoch, Time: at + g.RequestTime, MaxTTL: g.MaxTtl, Period: g.Period,
			}}
		}),
		Returns: list(m.Returns, func(r *pb.Return) Return {
			return Return{PartitionID: r.Id, Loan: loan.ID{Epoch: r.Epoch, Stamp: at + r.Stamp}, Back: r.Back}
		}),
	}
	return l, err // which held sets
}

func (r *Reset) body() *pb.Body {
	return &pb.Body{Kind: &pb.Body_TenantReset{TenantReset: &pb.Reset{
		From: fromProcess(r.From), Seq: r.Seq, Id: r.ID, Tenant: r.Sealed, To: list(r.To, fromProcess),
		Cuts:    list(r.Cuts, func(c Cut) *pb.Cut { return &pb.Cut{Region: c.Region, UpTo: c.UpTo, State: uint32(c.State)} }),
		BurntMs: r.BurntMS,
	}}}
}

func readReset(m *pb.Reset) *Reset {
	return &Reset{
		Head: Head{toProcess(m.From), m.Seq}, ID: m.Id, Sealed: m.Tenant, To: list(m.To, toProcess),
		Cuts:    list(m.Cuts, func(c *pb.Cut) Cut { return Cut{c.Region, c.UpTo, CutState(min(c.State, uint32(CutReturned)+1))} }),
		BurntMS: m.BurntMs,
	}
}

func (o *Overrides) body() *pb.Body {
	return &pb.Body{Kind: &pb.Body_Overrides{Overrides: &pb.Overrides{From: fromProcess(o.From), Seq: o.Seq, Sealed: o.Sealed}}}
}

func (t *Top) body() *pb.Body {
	return &pb.Body{Kind: &pb.Body_Top{Top: &pb.Top{From: fromProcess(t.From), Seq: t.Seq, Sealed: t.Sealed}}}
}

func fromProcess(p quota.Process) *pb.Process {
	return &pb.Process{Region: p.Region, Instance: p.Instance, BootUs: p.Boot}
}

func toProcess(p *pb.Process) quota.Process {
	return quota.Process{Region: p.GetRegion(), Instance: p.GetInstance(), Boot: p.GetBootUs()}
}

// list converts each element; of none it is nil.
func list[A, B any](all []A, convert func(A) B) []B {
	if len(all) == 0 {
		return nil
	}
	out := make([]B, len(all))
	for i, a := range all {
		out[i] = convert(a)
	}
	return out
}
