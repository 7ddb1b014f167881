package main

import (
	"fmt"
	"strings"
)

// mutant is the program without one rule.
type mutant struct {
	name     string
	file     string
	from, to string // from is there once
	estimate bool   // worlds of estimated limits show it
}

const (
	bookFile  = "quota/loan/loan.go"
	loansFile = "test/sim/loans.go"
)

func mutants() []mutant {
	return []mutant{
		{name: "borrowed units are lent on", file: bookFile, from: "max(0, min(c-used, b.Share-left(b.Lent)))", to: "max(0, c-used)"},
		{name: "units in use are lent", file: bookFile, from: "max(0, min(c-used, b.Share-left(b.Lent)))", to: "max(0, min(c, b.Share-left(b.Lent)))"},
		{name: "units in use are returned", file: bookFile, from: "free := b.Ceiling(now) - used", to: "free := b.Ceiling(now)"},
		{name: "a record ends with its loan", file: bookFile, from: "k := t.Length + t.Window", to: "k := t.Length"},
		{name: "a grant that comes again is added again", file: bookFile, from: "max(l.Units, g.Units), max", to: "l.Units+g.Units, max"},
		{name: "a loan counts from the receipt of its grant", file: bookFile, from: "until := g.Time + b.Terms.Length", to: "until := now + b.Terms.Length"},
		{name: "an extension makes a loan anew", file: bookFile, from: "		if g.New {\n", to: "		if g.New = true; g.New {\n"},
		{name: "a grant of another epoch is accepted", file: bookFile, from: "g.Epoch != b.Store.Epoch || ", to: ""},
		{name: "loans held outlast their epoch", file: bookFile, from: "		b.Held = nil\n", to: ""},
		{name: "records do not stand anew in a new epoch", file: bookFile, from: "			b.Lent[i].Until = now + b.Terms.Keep()\n", to: "			_ = i\n"},
		{name: "loans beyond a smaller share are extended", file: bookFile, from: "case left(b.Lent) > b.Share:", to: "case false:"},
		{name: "a store that lost its data is used at once", file: bookFile, from: "return b.Store.Lost > 0 && now < b.Store.Lost+b.Terms.Keep()", to: "return false"},
		{name: "a store that was rolled back is not noticed", file: loansFile, from: "	b.life = loan.Store{Epoch: b.life.Epoch + 1, Lost: b.s.nowUS()}\n", to: "	if to < 0 {\n		b.life = loan.Store{Epoch: b.life.Epoch + 1, Lost: b.s.nowUS()}\n	}\n"},
		{name: "a clock that stepped is not noticed", file: loansFile, from: "	if len(b.s.processes) > 0 {", to: "	if false {"},
		{name: "logs follow a clock that stepped", file: loansFile, from: "return b.s.nowUS() - (b.s.stepped + b.unsure).Microseconds()", to: "return b.s.nowUS()"},
		{name: "a first process goes on in the old epoch", file: "test/sim/process.go", from: "		s.store.bounds.unwatched()\n", to: ""},
		{name: "a larger share holds at once", file: loansFile, from: "		share = min(share, h.next[policy][place])\n", to: "		share = h.next[policy][place]\n"},
		{name: "a larger share holds once all confirmed it", file: loansFile, from: "	keep += keep * loan.RatePPM / 1_000_000 // by whichever clock\n", to: "	keep = 0\n"},
	}
}

// apply returns the source without the rule.
func (m *mutant) apply(source string) (string, error) {
	if n := strings.Count(source, m.from); n != 1 {
		return "", fmt.Errorf("%s: %s has %q %d times: bring the list of mutants up to date", m.name, m.file, m.from, n)
	}
	return strings.Replace(source, m.from, m.to, 1), nil
}
