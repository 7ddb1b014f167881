package view

import (
	"slices"

	"github.com/regiond/regiond/quota"
	"github.com/regiond/regiond/region"
)

// division is what limits are divided by: all topologies in play. It never changes,
// and is shared by every View until something of it does.
type division struct {
	regions []string // ours, in topology order
	weights []int64
	plays   []play
	blind   bool
	known   map[int64][]int64 // the parts of the limits that Configure was told of
}

// play is one topology in play, and where in it our regions stand, −1 where not.
type play struct {
	weights []int64
	place   []int
}

// divide puts together what r has in play and works out the parts of units.
func divide(r *rollout, units []int64) *division {
	d := &division{blind: r.blind, known: make(map[int64][]int64, len(units))}
	for _, w := range r.ours.weights {
		d.regions = append(d.regions, w.Region)
		d.weights = append(d.weights, w.Weight)
	}
	for _, t := range append([]topology{r.ours}, r.others...) {
		d.plays = append(d.plays, newPlay(t, d.regions))
	}
	for _, u := range units {
		d.known[u] = d.divided(u)
	}
	return d
}

func newPlay(t topology, regions []string) play {
	var p play
	for _, w := range t.weights {
		p.weights = append(p.weights, w.Weight)
	}
	for _, name := range regions {
		p.place = append(p.place, slices.IndexFunc(t.weights, func(w quota.Weight) bool { return w.Region == name }))
	}
	return p
}

// parts returns each region's part of units, in topology order, not to be changed.
// Units that nobody named before are divided on the spot.
func (d *division) parts(units int64) []int64 {
	if parts, ok := d.known[units]; ok {
		return parts
	}
	return d.divided(units)
}

// divided is the smallest part of each region under any topology in play; 0 for a
// region that one of them does not have, and for all when one is not known.
func (d *division) divided(units int64) []int64 {
	smallest := make([]int64, len(d.regions))
	if d.blind {
		return smallest
	}
	for n, play := range d.plays {
		parts := region.Parts(play.weights, units)
		for i, place := range play.place {
			var part int64
			if place >= 0 {
				part = parts[place]
			}
			if n == 0 || part < smallest[i] {
				smallest[i] = part
			}
		}
	}
	return smallest
}
