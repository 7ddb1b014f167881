package top

import "time"

// series counts in windows of a minute and of an hour, each in two generations. A generation
// ends once it is as old as its window, so what both hold covers one window to two:
//
//	lastMinute   minute ─▶ now
//	lastHour     hour ─────────── minute ─▶ now
//
// A minute is counted once: when it ends, it is merged into its hour.
type series struct {
	lastMinute, minute generation
	lastHour, hour     generation
}

// generation is a sketch of what was counted from a time on.
type generation struct {
	*sketch
	from time.Duration // of the Recorder's clock
}

func newSeries() series {
	empty := generation{newSketch(Counters), 0}
	return series{empty, empty, empty, empty}.next(0)
}

// next begins all generations but the last ones anew.
func (s series) next(at time.Duration) series {
	s.minute, s.hour = generation{newSketch(Counters), at}, generation{newSketch(Counters), at}
	return s
}

// advance ends the generations that are over.
func (s *series) advance(now time.Duration) {
	for now-s.minute.from >= time.Minute {
		end := s.minute.from + time.Minute
		s.hour.sketch = merged(s.hour.sketch, s.minute.sketch)
		s.lastMinute, s.minute = s.minute, generation{newSketch(Counters), end}
		if end-s.hour.from >= time.Hour {
			s.lastHour, s.hour = s.hour, generation{newSketch(Counters), end}
		}
	}
}

// window is what was counted in a window, a minute or an hour, and from when on.
func (s *series) window(w time.Duration) generation {
	if w == time.Hour {
		return generation{merged(s.lastHour.sketch, s.hour.sketch, s.minute.sketch), s.lastHour.from}
	}
	return generation{merged(s.lastMinute.sketch, s.minute.sketch), s.lastMinute.from}
}
