package loansim

import (
	"cmp"
	"encoding/binary"
	"hash/fnv"
	"slices"
	"strings"

	"github.com/regiond/regiond/quota/loan"
)

// Of states that behave alike one is visited: what can no longer matter is left out of a
// state before it is compared.

// prune drops what is over, and messages that no longer change anything, whatever happens: grants of a loan that would
// be over or that answer an earlier epoch, returns of which the record is over, and the second of two alike.
func (o Small) prune(w *smallWorld) {
	for i := range w.regions {
		w.regions[i].book.Ceiling(w.regions[i].now)
	}
	keep := w.msgs[:0]
	for _, m := range w.msgs {
		r := &w.regions[m.to]
		idle := !slices.ContainsFunc(r.book.Lent, func(l loan.Loan) bool { return l.ID == m.grant.ID && l.Back < m.grant.Units })
		if m.isGrant {
			old, age := m.grant.Epoch != r.book.Bound.Epoch, r.now-m.grant.Time
			switch {
			case o.Mutant == "stale", o.Mutant == "receipt", o.Steps: // these take what should have no effect
				idle = age > 3*tick
			default:
				idle = old || age >= o.terms().Length
			}
		}
		if !idle && !slices.Contains(keep, m) {
			keep = append(keep, m)
		}
	}
	w.msgs = keep
	if o.Mutant == "" {
		w.lower()
	}
}

// lower takes what the lender knows to be returned of a loan from all counts of it, which otherwise only grow: a
// book goes by their difference.
func (w *smallWorld) lower() {
	for i := range w.regions {
		for k := range w.regions[i].book.Lent {
			l := &w.regions[i].book.Lent[k]
			by := l.Back
			if by == 0 {
				continue
			}
			l.Units, l.Back = l.Units-by, 0
			held := w.regions[l.Peer[0]-'a'].book.Held
			for h := range held {
				if held[h].Peer == name(i) && held[h].ID == l.ID {
					held[h].Units, held[h].Back = held[h].Units-by, held[h].Back-by
				}
			}
			for m := range w.msgs {
				g := &w.msgs[m]
				if g.grant.ID == l.ID && (g.isGrant && g.from == i || !g.isGrant && g.to == i) {
					g.grant.Units = max(0, g.grant.Units-by)
				}
			}
		}
	}
}

// hash is that of the state in a form in which states that behave alike are alike: times relative to the region's
// clock, and IDs by their order.
func (w *smallWorld) hash() (h [16]byte) {
	b := make([]byte, 0, 128)
	put := func(v ...int64) {
		for _, n := range v {
			b = binary.AppendVarint(b, n)
		}
	}
	ids := make([]loan.ID, 0, 8)
	for i := range w.regions {
		for _, l := range w.regions[i].book.Lent {
			ids = append(ids, l.ID)
		}
		for _, l := range w.regions[i].book.Held {
			ids = append(ids, l.ID)
		}
	}
	for _, m := range w.msgs {
		ids = append(ids, m.grant.ID)
	}
	slices.SortFunc(ids, func(a, b loan.ID) int {
		return cmp.Or(cmp.Compare(a.Epoch, b.Epoch), cmp.Compare(a.Stamp, b.Stamp))
	})
	ids = slices.Compact(ids)
	rank := func(id loan.ID) int64 { return int64(slices.Index(ids, id)) }
	put(w.agreed)
	for _, u := range w.truth {
		put(int64(u))
	}
	for i := range w.regions {
		r := &w.regions[i]
		lost := int64(-1)
		if l := r.book.BurntUntilUS; r.now < l {
			lost = l - r.now
		}
		put(r.book.Share, int64(r.phase), lost)
		for _, u := range r.log {
			put(int64(u))
		}
		for _, loans := range [][]loan.Loan{r.book.Lent, r.book.Held} {
			for _, l := range loans {
				put(int64(l.Peer[0]), rank(l.ID), l.Units, l.Back, l.Until-r.now)
			}
			put(-1)
		}
	}
	start := len(b)
	keys := make([]string, 0, len(w.msgs))
	for _, m := range w.msgs {
		r := &w.regions[m.to]
		b = b[:start]
		put(int64(m.from), int64(m.to), rank(m.grant.ID), int64(bit(m.isGrant)), m.grant.Units)
		if m.isGrant {
			put(r.now-m.grant.Time, int64(r.book.Bound.Epoch-m.grant.Epoch), int64(bit(m.grant.New)))
		}
		keys = append(keys, string(b[start:]))
	}
	slices.Sort(keys)
	b = append(b[:start], strings.Join(keys, "")...)
	f := fnv.New128a()
	_, _ = f.Write(b)
	f.Sum(h[:0])
	return h
}

func bit(b bool) int {
	if b {
		return 1
	}
	return 0
}
