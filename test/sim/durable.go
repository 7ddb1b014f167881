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
	run   int                  // of the server
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

// These are KEPT, ASKED, GONE, PAUSED and AHEAD of region.lua, µs.
const (
	durableKept   = 600_000_000
	durableAsked  = 2_000_000
	durableGone   = 4_000_000
	durablePaused = 60_000_000
	durableAhead  = 3_600_000_000
)

// eval is state.Eval.
func (d *durable) eval(_ context.Context, _, _ string, args ...any) (any, error) {
	d.remember()
	arg := func(i int) string { s, _ := args[i].(string); return s }
	now := d.nowUS()
	time := strconv.FormatInt(now, 10)
	began, asked := "", ""
	topology, epoch, own, watched := d.state.get("topology"), d.state.get("epoch"), d.state.get(arg(0)), d.state.get("watched")
	written, others := pairs{}, []any{}
	for _, f := range slices.Clone(d.state) {
		if f[0] == "topology" || f[0] == "epoch" || f[0] == "server" || f[0] == "watched" {
			continue
		}
		written = append(written, f)
		if f[0] == arg(0) {
			continue
		}
		if numberOf(f[1]) <= now-durableKept {
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
		renew := ""
		if number, _, ok := strings.Cut(epoch, " "); ok && arg(4) == number {
			renew = arg(6)
		}
		last, _ := args[7].(int64)
		most, _ := args[9].(int64)
		asked, renew = d.server(arg(0), own, written, renew, last, now)
		if epoch == "" || renew != "" {
			epoch, began = renewed(epoch, arg(4), arg(5), renew, watched, most, now), "1"
		}
		d.state = d.state.set("epoch", epoch).set(arg(0), time+" "+arg(1))
		if arg(8) != "" {
			d.state = d.state.set("watched", time+" "+arg(8))
		}
	}
	return append([]any{time, topology, epoch, own, began, asked, watched}, others...), nil
}

// server is what a turn finds of the server, and how it renews the epoch then. last is the number of the process's last turn
// that was answered.
func (d *durable) server(field, own string, written pairs, renew string, last, now int64) (reply, again string) {
	run := strconv.Itoa(d.run)
	words := strings.Fields(d.state.get("server"))
	if known := len(words) > 0; !known || words[0] != run {
		words = append([]string{run, strconv.FormatInt(now, 10)}, words[min(2, len(words)):]...)
		newest := int64(0)
		if at := numberOf(d.state.get("watched")); at <= now {
			newest = at - durablePaused
		}
		for _, f := range written {
			newest = max(newest, numberOf(f[1]))
		}
		for _, f := range written {
			if known && numberOf(f[1]) > newest-durableGone {
				words = append(words, f[0])
			}
		}
		if known {
			if reply = "took"; renew != "lost" && renew != "stepped" {
				renew = "another"
			}
		}
	}
	_, turn, _ := strings.Cut(own, " ")
	since, left := numberOf(words[1]), slices.DeleteFunc(words[2:], func(f string) bool {
		return f == field && own != "" && numberOf(turn) >= last
	})
	if len(left) > 0 && now > since+durableAsked {
		reply, renew = "lost", "lost"
	}
	if renew == "lost" {
		left = nil
	}
	if len(left) > 0 {
		if reply = "ask"; renew == "reopen" {
			renew = ""
		}
	}
	d.state = d.state.set("server", strings.Join(append(words[:2:2], left...), " "))
	return reply, renew
}

// numberOf is the first number of a text, 0 where there is none.
func numberOf(text string) int64 {
	first, _, _ := strings.Cut(text, " ")
	n, _ := strconv.ParseInt(first, 10, 64)
	return n
}

// renewed is the epoch that follows on one, after a turn that knew one and the largest that ever was, and had seen most as TIME.
func renewed(epoch, known, top, renew, watched string, most, now int64) string {
	_, lost, _ := strings.Cut(epoch, " ")
	words := append(strings.Fields(epoch), "", "", "", "", "", "", "")
	at, data, lostIn := numberOf(lost), numberOf(words[5]), numberOf(words[6])
	before, next := at, max(numberOf(epoch)+1, numberOf(top)+1, now/1_000_000)
	switch {
	case renew == "lost" || epoch == "" && (known != "" || top != "0"):
		if at, data, lostIn = now, now, next; most > now && most <= now+durableAhead {
			data = most
		}
	case renew == "stepped":
		at = now
	case renew == "reopen":
		at, data = -now, 0
	}
	at = max(-now, min(at, now)) // by a clock that was ahead then
	if data > now+durableAhead {
		data = now
	}
	first, unwatched := next, int64(0)
	if epoch != "" {
		first = numberOf(words[3])
	}
	if at == before && at > 0 {
		unwatched = numberOf(words[4])
		if watched != "" {
			unwatched += max(0, now-numberOf(watched))
		}
	}
	return fmt.Sprintf("%d %d %d %d %d %d %d", next, at, now, first, unwatched, data, lostIn)
}

// epoch is that in force: what the deciding script compares with the epoch of each call.
func (d *durable) epoch() uint32 {
	return uint32(numberOf(d.state.get("epoch")))
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
