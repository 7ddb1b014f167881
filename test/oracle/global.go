package oracle

import "math/big"

// Spend is what one region admitted at one moment.
type Spend struct {
	Region  int
	US      int64 // true time, the same for all regions
	StoreUS int64 // what the region's store clock showed then
	Units   int64
}

// Global is one big limiter that sees every region's admissions at once. It cannot
// refuse any more: it judges how far each went, and how much of that the buckets
// explain in which regions exchange usage.
type Global struct {
	window  int64 // and the length of a bucket
	all     []Spend
	buckets []map[int64]filled // of each region, by number on its own clock
	ahead   []int64            // each region's clock minus true time, as last seen
}

// filled is what a bucket holds, and when it last grew, in true time.
type filled struct {
	units, us int64
}

// over reports whether nothing of a bucket counts any more, whatever its number.
func (g *Global) over(b filled, us int64) bool { return us-b.us > 3*g.window }

// Judgement is what was true at an admission, the admission included.
type Judgement struct {
	// Used is what all regions admitted in the window that ends there. Its maximum is
	// that over all windows: see Window.
	Used int64
	// Bias is, for each region but the asker, what it really used minus what a
	// peer would have counted that knew all its buckets at once. Above 0 the buckets
	// have forgotten something, below they remember too long.
	Bias []int64
	// Late is what the other regions admitted so shortly before that the asker may
	// not have known.
	Late int64
}

// NewGlobal judges that number of regions under a limit with that window, µs.
func NewGlobal(regions int, window int64) *Global {
	g := &Global{window: window, ahead: make([]int64, regions)}
	for range regions {
		g.buckets = append(g.buckets, map[int64]filled{})
	}
	return g
}

// Admit takes in an admission, not earlier than any before, and judges it. Late
// counts the lateUS microseconds before it.
func (g *Global) Admit(s Spend, lateUS int64) Judgement {
	g.all = append(g.all, s)
	b := g.buckets[s.Region][s.StoreUS/g.window]
	if g.over(b, s.US) { // its number comes again: the region's clock had stepped back
		b.units = 0
	}
	g.buckets[s.Region][s.StoreUS/g.window] = filled{b.units + s.Units, s.US}
	g.ahead[s.Region] = s.StoreUS - s.US
	j := Judgement{Bias: make([]int64, len(g.buckets))}
	for i := range g.buckets {
		used, late := g.used(i, s.US, g.window), g.used(i, s.US, lateUS)
		j.Used += used
		if i != s.Region {
			j.Bias[i] = used - g.counted(i, s.US)
			j.Late += late
		}
	}
	return j
}

// Between is what all regions admitted after one moment, up to another.
func (g *Global) Between(from, to int64) int64 {
	units := int64(0)
	for i := range g.buckets {
		units += g.used(i, to, to-from)
	}
	return units
}

// Used is what a region admitted in (us−window, us].
func (g *Global) Used(region int, us int64) int64 { return g.used(region, us, g.window) }

func (g *Global) used(region int, us, window int64) int64 {
	units := int64(0)
	for i := len(g.all) - 1; i >= 0 && g.all[i].US > us-window; i-- {
		if g.all[i].Region == region && g.all[i].US <= us {
			units += g.all[i].Units
		}
	}
	return units
}

// counted is the region's usage by its buckets at a moment: all of one while its start
// is less than a window old, then as much as still overlaps, rounded up.
func (g *Global) counted(region int, us int64) int64 {
	now := us + g.ahead[region]
	units := int64(0)
	for number, b := range g.buckets[region] {
		if g.over(b, us) {
			continue
		}
		overlap := number*g.window + g.window - (now - g.window)
		switch {
		case overlap >= g.window:
			units += b.units
		case overlap > 0:
			part := new(big.Rat).SetInt64(b.units)
			units += ceiling(part.Mul(part, big.NewRat(overlap, g.window)))
		}
	}
	return units
}
