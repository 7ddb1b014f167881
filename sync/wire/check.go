package wire

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"strings"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/regiond/regiond/quota"
	"github.com/regiond/regiond/quota/loan"
)

// counts is how many of each repeated field a message has, and of each embedded message.
// It bounds a message before it is unmarshaled: for a group that takes two bytes
// proto.Unmarshal allocates 200.
type counts map[protoreflect.Name]int

// check scans data, which is a message m, and allocates nothing for what it holds.
func (c counts) check(m protoreflect.MessageDescriptor, data []byte) error {
	for len(data) > 0 {
		num, typ, n := protowire.ConsumeField(data)
		if n < 0 {
			return refuse(ReasonMalformed, "%s: %w", m.Name(), protowire.ParseError(n))
		}
		_, _, tag := protowire.ConsumeTag(data)
		value, _ := protowire.ConsumeBytes(data[tag:n]) // nil of a number
		data = data[n:]
		f := m.Fields().ByNumber(num)
		if f == nil || !f.IsList() && f.Message() == nil {
			continue
		}
		most := maxCount(f.Name())
		if c[f.Name()] += values(f, typ, value); c[f.Name()] > most {
			return refuse(ReasonSize, "more than %d %s", most, f.Name())
		}
		if f.Message() != nil {
			if err := c.check(f.Message(), value); err != nil {
				return err
			}
		}
	}
	if n := c["ids"]; c["generations"] != n || c["units"] != n {
		return refuse(ReasonMalformed, "columns differ in length: %d ids, %d generations, %d units", n, c["generations"], c["units"])
	}
	return nil
}

// values is how many values one field has: a column has as many as there are bytes that
// end a varint.
func values(f protoreflect.FieldDescriptor, typ protowire.Type, data []byte) (n int) {
	switch {
	case !f.IsPacked() || typ != protowire.BytesType:
		return 1
	case f.Kind() == protoreflect.Fixed64Kind:
		return len(data) / 8
	}
	for _, b := range data {
		if b < 0x80 {
			n++
		}
	}
	return n
}

// maxCount is how often a field, or its values, may be in a message.
func maxCount(field protoreflect.Name) int {
	switch field {
	case "ids", "generations", "units":
		return MaxEntries
	case "growth":
		return 2 * MaxEntries
	case "groups":
		return MaxGroups
	case "members", "weights", "missing", "lenders", "to", "cuts":
		return quota.MaxRegions
	case "wants", "grants", "returns":
		return MaxLoans
	case "held":
		return MaxHeld
	}
	return MaxAcks // acks, answers, and what a message has once: in each of them, a process
}

// What follows holds a message to the ranges of wire.proto. Each value is looked at
// alone: whether a bucket is of the present depends on the author's clock, which sync
// knows.

func (u *Usage) check() error {
	err := cmp.Or(
		checkHead(u.From, u.Seq, u.TimeUS),
		within("origin_time_us", u.OriginTimeUS, 0, EndOfTime-1),
		u.Chunk.check())
	if u.Origin != "" {
		err = cmp.Or(err, at("origin", quota.ValidName(u.Origin)))
	}
	if (u.Number == 0) != (u.Chunk.Snapshot > 0) {
		err = cmp.Or(err, fmt.Errorf("number %d in snapshot %d: changes have a number, chunks have none", u.Number, u.Chunk.Snapshot))
	}
	for i := range u.Groups {
		err = cmp.Or(err, at("groups", u.Groups[i].check(), i))
	}
	return err
}

// checkHead checks what usage messages and heartbeats begin with.
func checkHead(from quota.Process, seq uint64, timeUS int64) error {
	return cmp.Or(at("from", checkProcess(from)), checkSeq(seq), within("time_us", timeUS, 1, EndOfTime-1))
}

func checkSeq(seq uint64) error {
	if seq == 0 {
		return errors.New("seq is 0, the first message has 1")
	}
	return nil
}

func checkProcess(p quota.Process) error {
	err := cmp.Or(at("region", quota.ValidName(p.Region)), within("boot_us", p.Boot, 1, EndOfTime-1))
	outside := func(r rune) bool { return r <= ' ' || r > '~' }
	if p.Instance == "" || len(p.Instance) > MaxInstance || strings.ContainsFunc(p.Instance, outside) {
		err = cmp.Or(err, fmt.Errorf("instance must be 1 to %d bytes of printable ASCII without space, is %.80q", MaxInstance, p.Instance))
	}
	return err
}

func (c *Chunk) check() error {
	if !c.is() {
		return nil
	}
	if c.Snapshot == 0 || c.Index >= c.Count || c.Count > MaxChunks || c.Since > c.UpTo {
		return fmt.Errorf("chunk %d of %d of snapshot %d (since %d, up to %d), at most %d are allowed", c.Index, c.Count, c.Snapshot, c.Since, c.UpTo, MaxChunks)
	}
	for i, a := range c.Answers {
		if err := cmp.Or(at("answers", checkProcess(a.Process), i), at("answers", checkSeq(a.Request), i)); err != nil {
			return err
		}
	}
	return nil
}

func (g *Group) check() error {
	policy, limit, _ := strings.Cut(g.Limit, ".")
	return cmp.Or(
		at("limit", cmp.Or(quota.ValidName(policy), quota.ValidName(limit))),
		within("window_us", g.WindowUS, quota.MinWindow.Microseconds(), quota.MaxWindow.Microseconds()),
		// The start of the bucket is below the end of time; the product is not formed.
		within("bucket", g.Bucket, 0, (EndOfTime-1)/max(1, g.WindowUS)),
		checkColumn("generations", g.Generations, 1, EndOfTime),
		checkColumn("units", g.Units, 0, quota.MaxCounter))
}

func checkColumn(name string, values []int64, lo, hi int64) error {
	for i, v := range values {
		if v < lo || v > hi {
			return at(name, within("it", v, lo, hi), i)
		}
	}
	return nil
}

func (h *Heartbeat) check() error {
	err := cmp.Or(
		checkHead(h.From, h.Seq, h.TimeUS),
		checkAscending("members", h.Members),
		within("unsent_ms", h.UnsentMS, 0, EndOfTime/1000))
	for i, a := range h.Acks {
		err = cmp.Or(err,
			at("acks", checkProcess(a.Process), i),
			at("acks", checkSeq(a.Seq), i),
			at("acks", within("received_us", a.ReceivedUS, 1, EndOfTime-1), i))
	}
	seen := make(map[string]bool, len(h.Weights))
	for i, w := range h.Weights {
		if seen[w.Region] {
			err = cmp.Or(err, fmt.Errorf("weights[%d]: region %.80q is duplicated", i, w.Region))
		}
		err = cmp.Or(err, at("weights", quota.ValidName(w.Region), i), at("weights", within("weight", w.Weight, 1, quota.MaxWeight), i))
		seen[w.Region] = true
	}
	return err
}

func (r *SnapshotRequest) check() error {
	return cmp.Or(at("from", checkProcess(r.From)), at("to", checkProcess(r.To)), at("request", checkSeq(r.Request)), checkAscending("missing", r.Missing))
}

func (l *Loans) check() error {
	err := cmp.Or(at("from", checkProcess(l.From)), checkSeq(l.Seq))
	for i := range l.Wants {
		err = cmp.Or(err, at("wants", l.Wants[i].check(), i))
	}
	for i := range l.Grants {
		g := &l.Grants[i]
		err = cmp.Or(err, at("grants", cmp.Or(
			checkLoan(g.ID, g.Units, 0), within("units", g.Units, 1, EndOfTime),
			checkLoanTime("request", g.Epoch, g.Time)), i))
	}
	for i := range l.Returns {
		r := &l.Returns[i]
		err = cmp.Or(err, at("returns", checkLoan(r.Loan, r.Back, r.Back), i))
	}
	return err
}

func (r *Reset) check() error {
	err := cmp.Or(at("from", checkProcess(r.From)), checkSeq(r.Seq), within("id", int64(min(r.ID, 1)), 1, 1))
	for i := range r.To {
		err = cmp.Or(err, at("to", checkProcess(r.To[i]), i))
	}
	for i, c := range r.Cuts {
		err = cmp.Or(err, at("cuts", cmp.Or(
			at("region", quota.ValidName(c.Region)), within("up_to", c.UpTo, 1, EndOfTime), within("state", int64(c.State), 0, int64(CutReturned))), i))
	}
	return err
}

func (w *Want) check() error {
	err := checkLoanTime("want", w.Epoch, w.Time)
	for i, units := range [...]int64{w.Need, w.Lack, w.Urgent, w.Share, w.Ceil, w.Slack} {
		err = cmp.Or(err, at("units", within("it", units, 0, EndOfTime), i))
	}
	if !(w.Rate >= 0 && w.Rate <= math.MaxFloat32) {
		err = cmp.Or(err, fmt.Errorf("rate must be a number from 0, is %g", w.Rate))
	}
	for i := range w.Held {
		h := &w.Held[i]
		err = cmp.Or(err, at("held", cmp.Or(
			at("lender", quota.ValidName(h.Peer)), checkLoan(h.ID, h.Units, h.Back), within("until", h.Until, 1, EndOfTime)), i))
	}
	return err
}

func checkLoan(id loan.ID, units, back int64) error {
	return cmp.Or(checkLoanTime("loan", id.Epoch, id.Stamp), within("units", units, 0, EndOfTime), within("back", back, 0, units))
}

func checkLoanTime(what string, epoch uint32, timeUS int64) error {
	if epoch == 0 {
		return fmt.Errorf("epoch of the %s is 0, which no store has", what)
	}
	return at(what, within("time", timeUS, 1, EndOfTime-1))
}

func checkAscending(list string, names []string) (err error) {
	for i, name := range names {
		if i > 0 && names[i-1] >= name {
			err = cmp.Or(err, fmt.Errorf("%s[%d]: %.80q does not come after %.80q", list, i, name, names[i-1]))
		}
		err = cmp.Or(err, at(list, quota.ValidName(name), i))
	}
	return err
}

func within(name string, v, lo, hi int64) error {
	if v < lo || v > hi {
		return fmt.Errorf("%s must be %d to %d, is %d", name, lo, hi, v)
	}
	return nil
}

// at adds to an error where in the message it is: a field, and the index in a list.
func at(field string, err error, index ...int) error {
	switch {
	case err == nil:
		return nil
	case len(index) > 0:
		return fmt.Errorf("%s%v: %w", field, index, err)
	}
	return fmt.Errorf("%s: %w", field, err)
}
