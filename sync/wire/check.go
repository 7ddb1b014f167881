package wire

import (
	"errors"
	"fmt"
	"strings"

	"github.com/regiond/regiond/quota"
)

// The checks hold a message that was read to the ranges of wire.proto. They look
// at each value alone; whether a bucket is of the present is for who knows the
// author's clock.

func (u *Usage) check() error {
	if err := checkHead(&u.From, u.Seq, u.TimeUS); err != nil {
		return err
	}
	if u.Origin != "" {
		if err := quota.ValidName(u.Origin); err != nil {
			return refuse(ReasonRange, "of: %w", err)
		}
	}
	if err := within("origin_time_us", u.OriginTimeUS, 0, EndOfTime-1); err != nil {
		return err
	}
	if err := u.Chunk.check(); err != nil {
		return in("chunk", err)
	}
	for i := range u.Groups {
		if err := u.Groups[i].check(); err != nil {
			return in(fmt.Sprintf("groups[%d]", i), err)
		}
	}
	return nil
}

// checkHead checks what usage messages and beats begin with.
func checkHead(from *quota.Process, seq uint64, timeUS int64) error {
	if err := checkProcess(from); err != nil {
		return in("from", err)
	}
	if seq == 0 {
		return refuse(ReasonRange, "seq is 0, the first message has 1")
	}
	return within("time_us", timeUS, 1, EndOfTime-1)
}

func checkProcess(p *quota.Process) error {
	if err := quota.ValidName(p.Region); err != nil {
		return refuse(ReasonRange, "region: %w", err)
	}
	if err := validInstance(p.Instance); err != nil {
		return refuse(ReasonRange, "instance: %w", err)
	}
	return within("boot_us", p.Boot, 1, EndOfTime-1)
}

// validInstance accepts 1–255 bytes of printable ASCII without space.
func validInstance(s string) error {
	if s == "" || len(s) > MaxInstance {
		return fmt.Errorf("a name has 1 to %d bytes, %q has %d", MaxInstance, clip(s), len(s))
	}
	for i := range len(s) {
		if s[i] <= ' ' || s[i] > '~' {
			return fmt.Errorf("must be printable ASCII without space, %q is not", clip(s))
		}
	}
	return nil
}

// validLimit accepts "<policy>.<limit>".
func validLimit(s string) error {
	policy, limit, ok := strings.Cut(s, ".")
	if !ok {
		return fmt.Errorf("%q is not <policy>.<limit>", clip(s))
	}
	return errors.Join(quota.ValidName(policy), quota.ValidName(limit))
}

func (c Chunk) check() error {
	if c.Snapshot == 0 && c != (Chunk{}) {
		return refuse(ReasonRange, "a part of digest 0, the first has 1")
	}
	if c.Count > MaxChunks {
		return refuse(ReasonSize, "%d parts, at most %d are allowed", c.Count, MaxChunks)
	}
	if c.Snapshot != 0 && c.Index >= c.Count {
		return refuse(ReasonRange, "index %d of %d parts", c.Index, c.Count)
	}
	return nil
}

func (g *Group) check() error {
	if err := validLimit(g.Limit); err != nil {
		return refuse(ReasonRange, "limit: %w", err)
	}
	if err := within("window_us", g.WindowUS, quota.MinWindow.Microseconds(), quota.MaxWindow.Microseconds()); err != nil {
		return err
	}
	shortest := (g.WindowUS + MaxBuckets - 1) / MaxBuckets
	if err := within("bucket_us", g.BucketUS, shortest, g.WindowUS); err != nil {
		return err
	}
	// The start of the bucket is below the end of time; the product is not formed.
	if err := within("bucket", g.Bucket, 0, (EndOfTime-1)/g.BucketUS); err != nil {
		return err
	}
	for i, e := range g.Generations {
		if e < 1 || e > EndOfTime {
			return in(fmt.Sprintf("generations[%d]", i), within("generation", e, 1, EndOfTime))
		}
	}
	for i, u := range g.Units {
		if u < 0 || u > quota.MaxCounter {
			return in(fmt.Sprintf("units[%d]", i), within("total", u, 0, quota.MaxCounter))
		}
	}
	return nil
}

func (b *Heartbeat) check() error {
	if err := checkHead(&b.From, b.Seq, b.TimeUS); err != nil {
		return err
	}
	for i := range b.Acks {
		if err := b.Acks[i].check(); err != nil {
			return in(fmt.Sprintf("acks[%d]", i), err)
		}
	}
	if err := checkNames("members", b.Members); err != nil {
		return err
	}
	if err := checkWeights(b.Weights); err != nil {
		return err
	}
	return within("unsent_ms", b.UnsentMS, 0, EndOfTime/1000)
}

// checkNames wants a list of regions in ascending order.
func checkNames(list string, names []string) error {
	for i, name := range names {
		if err := quota.ValidName(name); err != nil {
			return refuse(ReasonRange, "%s[%d]: %w", list, i, err)
		}
		if i > 0 && names[i-1] >= name {
			return refuse(ReasonRange, "%s[%d]: %q does not come after %q", list, i, name, names[i-1])
		}
	}
	return nil
}

func (a *Ack) check() error {
	if err := checkProcess(&a.Process); err != nil {
		return in("process", err)
	}
	if a.Seq == 0 {
		return refuse(ReasonRange, "seq is 0, the first message has 1")
	}
	return within("received_us", a.ReceivedUS, 1, EndOfTime-1)
}

func checkWeights(weights []quota.Weight) error {
	seen := make(map[string]bool, len(weights))
	for i, w := range weights {
		if err := quota.ValidName(w.Region); err != nil {
			return refuse(ReasonRange, "weights[%d].region: %w", i, err)
		}
		if seen[w.Region] {
			return refuse(ReasonRange, "weights[%d]: region %q comes twice", i, w.Region)
		}
		seen[w.Region] = true
		if err := within("weight", w.Weight, 1, MaxWeight); err != nil {
			return in(fmt.Sprintf("weights[%d]", i), err)
		}
	}
	return nil
}

// within refuses a number outside lo…hi.
func within(name string, v, lo, hi int64) error {
	if v < lo || v > hi {
		return refuse(ReasonRange, "%s must be %d to %d, is %d", name, lo, hi, v)
	}
	return nil
}
