package sim

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// durable is the hash that region/state keeps in a region's Redis, and its script region.lua
// in Go; TestDurable holds it to the script.
type durable struct {
	nowUS func() int64
	now   func() time.Duration // true time
	state pairs
	past  []version // that a store may be rolled back to, oldest first
}

// pairs are fields and their values, in the order in which they were first set.
type pairs [][2]string

// version is what the hash held until a moment.
type version struct {
	until time.Duration
	pairs
}

// keptFor is how far back a store is rolled back at most.
const keptFor = 10 * time.Second

func (p pairs) get(field string) string {
	for i := range p {
		if p[i][0] == field {
			return p[i][1]
		}
	}
	return ""
}

func (p pairs) set(field, value string) pairs {
	for i := range p {
		if p[i][0] == field {
			p[i][1] = value
			return p
		}
	}
	return append(p, [2]string{field, value})
}

func (p pairs) without(field string) pairs {
	return slices.DeleteFunc(p, func(f [2]string) bool { return f[0] == field })
}

// durableKept is for how long an entry is kept, µs.
const durableKept = 600_000_000

// eval is state.Eval.
func (d *durable) eval(_ context.Context, _, _ string, args ...any) (any, error) {
	d.remember()
	arg := func(i int) string { s, _ := args[i].(string); return s }
	now := d.nowUS()
	time := strconv.FormatInt(now, 10)
	began := ""
	topology, epoch, own := d.state.get("topology"), d.state.get("epoch"), d.state.get(arg(0))
	var others []any
	for _, f := range slices.Clone(d.state) {
		if f[0] == "topology" || f[0] == "epoch" || f[0] == arg(0) {
			continue
		}
		at, _, _ := strings.Cut(f[1], " ")
		if us, err := strconv.ParseInt(at, 10, 64); err != nil || us <= now-durableKept {
			d.state = d.state.without(f[0])
			continue
		}
		others = append(others, f[0], f[1])
	}
	if arg(3) != "" && arg(2) == topology {
		topology = arg(3)
		d.state = d.state.set("topology", topology)
	}
	if arg(1) == "" {
		d.state = d.state.without(arg(0))
	} else {
		next := d.renewed(epoch, arg(4), arg(5), arg(6), now)
		if next != epoch {
			epoch, began = next, "1"
		}
		d.state = d.state.set("epoch", epoch).set(arg(0), time+" "+arg(1))
	}
	return append([]any{time, topology, epoch, own, began, ""}, others...), nil
}

// renewed is the epoch after a turn that knew one and the largest that ever was.
func (d *durable) renewed(epoch, known, top, renew string, now int64) string {
	number, lost, _ := strings.Cut(epoch, " ")
	lost, _, _ = strings.Cut(lost, " ")
	if epoch != "" && (renew == "" || known != number) {
		return epoch
	}
	if renew == "lost" || epoch == "" && known != "" {
		lost = strconv.FormatInt(now, 10)
	}
	if lost == "" {
		lost = "0"
	}
	if at, _ := strconv.ParseInt(lost, 10, 64); at > now { // by a clock that was ahead then
		lost = strconv.FormatInt(now, 10)
	}
	before, _ := strconv.ParseInt(number, 10, 64) // 0 where there is none
	largest, _ := strconv.ParseInt(top, 10, 64)
	return fmt.Sprintf("%d %s %d", max(before+1, largest+1, now/1_000_000), lost, now)
}

// epoch is that in force: what the deciding script compares with the epoch of each call.
func (d *durable) epoch() uint32 {
	number, _, _ := strings.Cut(d.state.get("epoch"), " ")
	n, _ := strconv.ParseUint(number, 10, 32)
	return uint32(n)
}

// remember keeps the hash as it is, before a change.
func (d *durable) remember() {
	now := d.now()
	for len(d.past) > 0 && d.past[0].until < now-keptFor {
		d.past = d.past[1:]
	}
	d.past = append(d.past, version{now, slices.Clone(d.state)})
}

// back has the hash be as it was at a moment.
func (d *durable) back(to time.Duration) {
	for len(d.past) > 0 && d.past[len(d.past)-1].until > to {
		d.state, d.past = d.past[len(d.past)-1].pairs, d.past[:len(d.past)-1]
	}
}

// forget empties the hash.
func (d *durable) forget() { d.state, d.past = nil, nil }
