package accuracy

// trail counts what happened in (t−width, t]. Calls go
// forward in time only; so one step for each that enters and one for each that
// leaves is all that a count takes.
type trail struct {
	width int64 // µs
	at    []int64
	head  int // the oldest that is inside still
}

func (t *trail) add(us int64) { t.at = append(t.at, us) }

func (t *trail) count(us int64) int64 {
	for t.head < len(t.at) && t.at[t.head] <= us-t.width {
		t.head++
	}
	return int64(len(t.at) - t.head)
}

// leaves is when the oldest that is inside will be outside; ok is false if there
// is none.
func (t *trail) leaves() (us int64, ok bool) {
	if t.head == len(t.at) {
		return 0, false
	}
	return t.at[t.head] + t.width, true
}

// allKnowing is the limiter that others are measured against: one exact sliding
// log of all regions' admissions, known to all at once.
type allKnowing struct {
	limit    int64
	log      trail
	admitted int64
}

func (k *allKnowing) check(us int64) {
	if k.log.count(us) < k.limit {
		k.log.add(us)
		k.admitted++
	}
}

// pastime is for how long each count held.
type pastime struct {
	heldUS  []int64 // by count
	sinceUS int64
}

func (p *pastime) hold(count, untilUS int64) {
	for int64(len(p.heldUS)) <= count {
		p.heldUS = append(p.heldUS, 0)
	}
	p.heldUS[count] += untilUS - p.sinceUS
	p.sinceUS = untilUS
}

// join adds what another saw, of another time.
func (p *pastime) join(o *pastime) {
	for count, us := range o.heldUS {
		for len(p.heldUS) <= count {
			p.heldUS = append(p.heldUS, 0)
		}
		p.heldUS[count] += us
	}
}

// above is the mean over time of how far the count was above a limit, in units, and
// by how much it was exceeded for a hundredth of the time.
func (p *pastime) above(limit int64) (mean float64, p99 int64) {
	totalUS, areaUS, topUS := int64(0), int64(0), int64(0)
	for count, us := range p.heldUS {
		totalUS += us
		areaUS += us * max(0, int64(count)-limit)
	}
	if totalUS == 0 {
		return 0, 0
	}
	count := int64(len(p.heldUS)) - 1
	for ; count > limit; count-- {
		if topUS += p.heldUS[count]; topUS*100 > totalUS {
			break
		}
	}
	return float64(areaUS) / float64(totalUS), max(0, count-limit)
}
