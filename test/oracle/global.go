package oracle

// Spend is what one region admitted at one moment.
type Spend struct {
	Region int
	US     int64 // true time, the same for all regions
	Units  int64
}

// Global is one big limiter that sees every region's admissions at once. It cannot
// refuse any more: it judges how far each went, and how much of that was in transit.
type Global struct {
	window int64
	all    []Spend
}

// Judgement is what was true at an admission, the admission included.
type Judgement struct {
	// Used is what all regions admitted in the window that ends there. Its maximum is that over all windows: moving the
	// end of any other back to the last admission inside it loses none of them.
	Used int64
	// Late is what the other regions admitted so shortly before that the asker may
	// not have known.
	Late int64
}

// NewGlobal judges all regions under a limit with that window, µs.
func NewGlobal(window int64) *Global { return &Global{window: window} }

// Admit takes in an admission, not earlier than any before, and judges it. Late
// counts the lateUS microseconds before it.
func (g *Global) Admit(s Spend, lateUS int64) Judgement {
	g.all = append(g.all, s)
	return Judgement{
		Used: g.Between(s.US-g.window, s.US),
		Late: g.count(s.US-lateUS, s.US, func(region int) bool { return region != s.Region }),
	}
}

// Between is what all regions admitted after one moment, up to another.
func (g *Global) Between(from, to int64) int64 {
	return g.count(from, to, func(int) bool { return true })
}

// Used is what a region admitted in (us−window, us].
func (g *Global) Used(region int, us int64) int64 {
	return g.count(us-g.window, us, func(r int) bool { return r == region })
}

func (g *Global) count(from, to int64, of func(region int) bool) (units int64) {
	for i := len(g.all) - 1; i >= 0 && g.all[i].US > from; i-- {
		if s := &g.all[i]; s.US <= to && of(s.Region) {
			units += s.Units
		}
	}
	return units
}
