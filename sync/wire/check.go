package wire

import (
	"cmp"
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
			return Refuse(ReasonMalformed, "%s: %w", m.Name(), protowire.ParseError(n))
		}
		_, _, tag := protowire.ConsumeTag(data)
		value, _ := protowire.ConsumeBytes(data[tag:n]) // nil of a number
		data = data[n:]
		f := m.Fields().ByNumber(num)
		if f == nil || !f.IsList() && f.Message() == nil {
			continue
		}
		most := maxCount(f.Name())
		name := f.Name()
		if name == "periods" { // groups too
			name = "groups"
		}
		if c[name] += values(f, typ, value); c[name] > most {
			return Refuse(ReasonSize, "more than %d %s", most, name)
		}
		if f.Message() != nil {
			if err := c.check(f.Message(), value); err != nil {
				return err
			}
		}
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
	case "ids", "generations", "units", "held_rows", "held_sequences", "held_units", "held_left":
		return MaxEntries
	case "growth":
		return 2 * MaxEntries
	case "groups", "periods":
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
	var number, origin error
	if (u.Number == 0) != (u.Chunk.Snapshot > 0) {
		number = fmt.Errorf("number %d in snapshot %d: changes have a number, chunks have none", u.Number, u.Chunk.Snapshot)
	}
	if u.Origin != "" {
		origin = quota.ValidName(u.Origin)
	}
	return cmp.Or(
		u.checkHead(),
		within("time_us", u.TimeUS, 1, EndOfTime-1),
		within("origin_time_us", u.OriginTimeUS, 0, EndOfTime-1),
		u.Chunk.check(),
		at("origin", origin),
		number,
		each("groups", u.Groups, (*Group).check))
}

func (h *Head) checkHead() error {
	return cmp.Or(at("from", checkProcess(&h.From)), checkNumber("seq", h.Seq))
}

func checkNumber(name string, number uint64) error {
	if number == 0 {
		return fmt.Errorf("%s is 0, the first has 1", name)
	}
	return nil
}

func checkProcess(p *quota.Process) error {
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
		return fmt.Errorf("chunk %d of %d of snapshot %d (since %d, up to %d), at most %d are allowed",
			c.Index, c.Count, c.Snapshot, c.Since, c.UpTo, MaxChunks)
	}
	return each("answers", c.Answers, func(a *Answer) error {
		return cmp.Or(checkProcess(&a.Process), checkNumber("request", a.Request))
	})
}

func (g *Group) check() error {
	policy, limit, _ := strings.Cut(g.Limit, ".")
	return cmp.Or(
		at("limit", cmp.Or(quota.ValidName(policy), quota.ValidName(limit))),
		within("window_us", g.WindowUS, quota.MinWindow.Microseconds(), quota.MaxWindow.Microseconds()),
		g.checkBucket(),
		eachWithin("generations", g.Generations, 1, EndOfTime),
		eachWithin("units", g.Units, 0, quota.MaxCounter),
		each("gauges", g.Gauges, func(h *Gauge) error {
			return cmp.Or(within("sequence", h.Sequence, 0, EndOfTime), within("units", h.Units, 0, quota.MaxUnits),
				within("left", h.LeftUS, 0, quota.MaxTTL.Microseconds()))
		}))
}

func (g *Group) checkBucket() error {
	if g.EndsUS != 0 {
		return cmp.Or(within("bucket", g.Bucket, 0, MaxPeriod), within("ends_us", g.EndsUS, 1, EndOfTime-1))
	}
	// The start of the bucket is below the end of time; the product is not formed.
	return within("bucket", g.Bucket, 0, (EndOfTime-1)/max(1, g.WindowUS))
}

func (h *Heartbeat) check() error {
	seen := make(map[string]bool, len(h.Weights))
	return cmp.Or(
		h.checkHead(),
		within("time_us", h.TimeUS, 1, EndOfTime-1),
		checkAscending("members", h.Members),
		within("unsent_ms", h.UnsentMS, 0, EndOfTime/1000),
		each("acks", h.Acks, func(a *Ack) error {
			return cmp.Or(checkProcess(&a.Process), checkNumber("seq", a.Seq), within("received_us", a.ReceivedUS, 1, EndOfTime-1))
		}),
		each("weights", h.Weights, func(w *quota.Weight) error {
			if seen[w.Region] {
				return fmt.Errorf("region %.80q is duplicated", w.Region)
			}
			seen[w.Region] = true
			return cmp.Or(quota.ValidName(w.Region), within("weight", w.Weight, 1, quota.MaxWeight))
		}))
}

func (r *SnapshotRequest) check() error {
	return cmp.Or(
		at("from", checkProcess(&r.From)), at("to", checkProcess(&r.To)), checkNumber("request", r.Request), checkAscending("missing", r.Missing))
}

func (l *Loans) check() error {
	return cmp.Or(
		l.checkHead(),
		each("wants", l.Wants, (*Want).check),
		each("grants", l.Grants, func(g *Grant) error {
			return cmp.Or(checkLoan(g.ID, g.Units, 0), within("units", g.Units, 1, EndOfTime), checkLoanTime("request", g.Epoch, g.Time),
				within("max_ttl", g.MaxTTL, 0, quota.MaxTTL.Microseconds()), within("period", g.Period, 0, EndOfTime))
		}),
		each("returns", l.Returns, func(r *Return) error { return checkLoan(r.Loan, r.Back, r.Back) }))
}

func (w *Want) check() error {
	var rate error
	if !(w.Rate >= 0 && w.Rate <= math.MaxFloat32) {
		rate = fmt.Errorf("rate must be a number from 0, is %g", w.Rate)
	}
	return cmp.Or(
		checkLoanTime("want", w.Epoch, w.Time),
		eachWithin("units", []int64{w.Need, w.Lack, w.Urgent, w.Share, w.Ceil, w.Slack, w.Cost}, 0, EndOfTime),
		within("period", w.Period, 0, EndOfTime),
		rate,
		each("held", w.Held, func(h *loan.Loan) error {
			return cmp.Or(at("lender", quota.ValidName(h.Peer)), checkLoan(h.ID, h.Units, h.Back), within("until", h.Until, 1, EndOfTime))
		}))
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

func (r *Reset) check() error {
	return cmp.Or(
		r.checkHead(),
		checkNumber("id", r.ID),
		each("to", r.To, checkProcess),
		each("cuts", r.Cuts, func(c *Cut) error {
			return cmp.Or(at("region", quota.ValidName(c.Region)), within("up_to", c.UpTo, 1, EndOfTime), within("state", int64(c.State), 0, int64(CutReturned)))
		}),
		within("burnt_ms", r.BurntMS, -1, EndOfTime/1000))
}

func (t *Top) check() error { return t.checkHead() }

func (o *Overrides) check() error { return o.checkHead() }

func checkAscending(list string, names []string) error {
	before := ""
	return each(list, names, func(name *string) error {
		if *name <= before { // no name is empty
			return fmt.Errorf("%.80q does not come after %.80q", *name, before)
		}
		before = *name
		return quota.ValidName(*name)
	})
}

func within(name string, v, lo, hi int64) error {
	if v < lo || v > hi {
		return fmt.Errorf("%s must be %d to %d, is %d", name, lo, hi, v)
	}
	return nil
}

// each checks a list; its error says where in it.
func each[T any](list string, all []T, check func(*T) error) error {
	for i := range all {
		if err := check(&all[i]); err != nil {
			return fmt.Errorf("%s[%d]: %w", list, i, err)
		}
	}
	return nil
}

func eachWithin(list string, values []int64, lo, hi int64) error {
	for i, v := range values {
		if v < lo || v > hi {
			return within(fmt.Sprintf("%s[%d]", list, i), v, lo, hi)
		}
	}
	return nil
}

// at adds to an error the field that it is about.
func at(field string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", field, err)
}

// Reason is why a message was refused, in one word. The words are stable: they are the
// label of a metric.
type Reason string

// The reasons, each with what usually sends such a message.
const (
	// ReasonMalformed: it is not an envelope of the expected kind. Somebody else
	// publishes on our subjects, or the bytes were damaged.
	ReasonMalformed Reason = "malformed"
	// ReasonVersion: it is of another version. Half of the processes were upgraded.
	ReasonVersion Reason = "version"
	// ReasonMAC: it was not written under this subject by a holder of our secret. Somebody
	// else publishes on our subjects, or processes have different keys.
	ReasonMAC Reason = "mac"
	// ReasonSize: it has more bytes, counters, groups or other parts than it may.
	ReasonSize Reason = "size"
	// ReasonRange: a number or a name is not one that a regiond writes.
	ReasonRange Reason = "range"
	// ReasonAuthor: its author is of another region than its subject.
	ReasonAuthor Reason = "author"
	// ReasonUnknownRegion: its region is not in the topology.
	ReasonUnknownRegion Reason = "unknown_region"
	// ReasonStale: its author left or was restarted, or it was repeated.
	ReasonStale Reason = "stale"
	// ReasonCrowded: its author would be one process more than can be known.
	ReasonCrowded Reason = "crowded"
	// ReasonRegions: its author is of one region more than can be known.
	ReasonRegions Reason = "regions"
)

// Reasons returns all reasons, for a metric that shows zeros.
func Reasons() []Reason {
	return []Reason{
		ReasonMalformed, ReasonVersion, ReasonMAC, ReasonSize, ReasonRange, ReasonAuthor,
		ReasonUnknownRegion, ReasonStale, ReasonCrowded, ReasonRegions,
	}
}

// Error is a message that was refused. Nothing of it was used.
type Error struct {
	Reason Reason
	Err    error // where in the message and what is wrong, for a log
}

func (e *Error) Error() string { return fmt.Sprintf("message refused (%s): %v", e.Reason, e.Err) }

func (e *Error) Unwrap() error { return e.Err }

// Refuse returns an *Error.
func Refuse(r Reason, format string, args ...any) error {
	return &Error{Reason: r, Err: fmt.Errorf(format, args...)}
}
