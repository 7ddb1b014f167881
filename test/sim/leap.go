package sim

import (
	"slices"
	"time"

	meshsync "github.com/regiond/regiond/sync"
)

const (
	// leapUnit is what leaps are whole numbers of: beats and looks come round in it.
	leapUnit = 3 * meshsync.BeatEvery
	// restFor is how long nothing but beats must have happened before a leap, and is
	// played after it, so that what differs between beats is that of beats that were.
	restFor = (meshsync.RestingFor + 2) * meshsync.BeatEvery
	// lookGrid is where looks fall while all is well, in the time of each process. It is
	// below the longest time that the lookout allows.
	lookGrid = leapUnit / 2
)

// leap does at once what so many beats would have done, if the world is at rest: see
// Mesh.Leap. It ends restFor before until, or before the next call if that is sooner.
func (w *World) leap(until time.Duration) {
	if w.o.EveryBeat || w.now < w.mayLeap {
		return
	}
	if at, ok := w.queue.calls.next(); ok {
		until = min(until, at)
	}
	by := (until - restFor - w.now) / leapUnit * leapUnit
	if by < restFor {
		return
	}
	w.mayLeap = w.now + restFor/4
	if !w.atRest() {
		return
	}
	w.now += by
	w.stats.Leapt += by
	w.queue.leap(by)
	for _, p := range w.living() {
		p.leap(by)
	}
}

// atRest reports whether every process beats, hears all others, and has nothing else
// to do, and nothing but beats is under way.
func (w *World) atRest() bool {
	if !w.well() {
		return false
	}
	for _, p := range w.living() {
		if !p.idle || p.readable > w.now || !p.lookout.Steady() || !p.mesh.Resting() {
			return false
		}
	}
	return w.queue.onlyBeats()
}

// well reports whether nothing is wrong at present with bus, stores and processes.
func (w *World) well() bool {
	for i := range w.links {
		for j := range w.links[i] {
			if l := &w.links[i][j]; l.cut || l.loss > 0 || l.twice > 0 || l.late > 0 {
				return false
			}
		}
	}
	for _, s := range w.sites {
		if s.store.away || s.seen != s.stepped {
			return false
		}
	}
	return !slices.ContainsFunc(w.living(), func(p *process) bool { return p.frozen || p.bus.down })
}

func (p *process) leap(by time.Duration) {
	beats := uint64(by / meshsync.BeatEvery)
	p.mesh.Leap(beats)
	p.bus.published += beats
	for to := range p.bus.newest {
		p.bus.newest[to] += by
	}
	for q := range p.known.heard {
		p.known.heard[q] += by
	}
	p.woken += by
	p.look += by
	p.lookout.Leap(by)
}

// onlyBeats reports whether nothing else is under way.
func (q *queue) onlyBeats() bool {
	for i := range q.rest {
		if e := &q.rest[i]; e.kind == kindMessage && !e.msg.Beat() {
			return false
		}
	}
	return true
}

// leap puts off all but the calls.
func (q *queue) leap(by time.Duration) {
	beats := uint64(by / meshsync.BeatEvery)
	for i := range q.rest {
		e := &q.rest[i]
		e.at += by
		if e.kind == kindMessage {
			e.msg = &message{Opened: e.msg.Leap(beats), from: e.msg.from, hash: e.msg.hash}
		}
	}
}
