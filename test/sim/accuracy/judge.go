package accuracy

// Check is what became of an arrival.
type Check struct {
	US       int64 // true time, the same for all regions, never before the last one's
	StoreUS  int64 // what the region's store clock showed then
	Region   int
	Admitted bool
}

// Figures are what a Judge found. Units are units of the limit.
type Figures struct {
	Asked, Admitted int64
	// AllKnowing is what the all-knowing limiter admitted of the same checks.
	AllKnowing int64
	// Needless counts denials while everything that was asked for in the window that
	// ends there, this check included, would have fit.
	Needless int64
	// Worst is how far the worst window went over the limit, wherever it began; below 0
	// if no window was full.
	Worst int64
	// P99 is how far windows went over the limit for a hundredth of the time, and Mean
	// how far on average, windows below it counting 0.
	P99  int64
	Mean float64
	// Aligned is how far the worst of the windows went that regiond measures itself:
	// those that begin at multiples of W on the store clocks.
	Aligned int64
}

// Judge sees every check and believes nothing but yes and no. It wants checks in
// the order of time.
type Judge struct {
	limit, window int64
	figures       Figures
	asked         trail
	admitted      trail
	ideal         allKnowing
	pastime       pastime
	alignedUnits  map[int64]int64 // by number of the window
}

// NewJudge judges regions under a limit of units in a window, µs.
func NewJudge(limit, window int64) *Judge {
	return &Judge{
		limit: limit, window: window,
		asked: trail{width: window}, admitted: trail{width: window},
		ideal:        allKnowing{limit: limit, log: trail{width: window}},
		alignedUnits: map[int64]int64{},
		figures:      Figures{Worst: -limit, Aligned: -limit},
	}
}

// Take takes a check in.
func (j *Judge) Take(c Check) {
	j.figures.Asked++
	j.asked.add(c.US)
	j.ideal.check(c.US)
	if !c.Admitted {
		if j.asked.count(c.US) <= j.limit {
			j.figures.Needless++
		}
		return
	}
	j.admit(c)
}

func (j *Judge) admit(c Check) {
	j.passTo(c.US)
	j.figures.Admitted++
	j.admitted.add(c.US)
	f := &j.figures
	f.Worst = max(f.Worst, j.admitted.count(c.US)-j.limit)
	number := c.StoreUS / j.window
	j.alignedUnits[number]++
	f.Aligned = max(f.Aligned, j.alignedUnits[number]-j.limit)
}

// passTo lets time pass: counts fall by themselves as units leave the window.
func (j *Judge) passTo(us int64) {
	for at, ok := j.admitted.leaves(); ok && at <= us; at, ok = j.admitted.leaves() {
		inside := int64(len(j.admitted.at) - j.admitted.head)
		j.pastime.hold(inside, at)
		j.admitted.head++
	}
	j.pastime.hold(j.admitted.count(us), us)
}

// Figures returns what was found up to endUS, when the judge's work is done.
func (j *Judge) Figures(endUS int64) Figures { return j.tally(endUS).figures(j.limit) }

func (j *Judge) tally(endUS int64) *tally {
	j.passTo(endUS)
	t := &tally{all: j.figures, pastime: j.pastime}
	t.all.AllKnowing = j.ideal.admitted
	return t
}

// tally is what one or several judges found, each in a world of its own.
type tally struct {
	all     Figures // but for Mean and P99
	pastime pastime
}

// join takes in what other judges found.
func (t *tally) join(o *tally) {
	t.pastime.join(&o.pastime)
	a, f := &t.all, &o.all
	a.Asked, a.Admitted = a.Asked+f.Asked, a.Admitted+f.Admitted
	a.AllKnowing, a.Needless = a.AllKnowing+f.AllKnowing, a.Needless+f.Needless
	a.Worst, a.Aligned = max(a.Worst, f.Worst), max(a.Aligned, f.Aligned)
}

// figures is everything together, under a limit.
func (t *tally) figures(limit int64) Figures {
	f := t.all
	f.Mean, f.P99 = t.pastime.above(limit)
	return f
}
