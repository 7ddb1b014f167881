package accuracy

// blur follows, for one region, what it really used and what a peer would count
// that knew all its buckets at once.
type blur struct {
	window  int64 // µs, and the length of a bucket
	used    trail
	buckets []held
}

type held struct{ number, units int64 }

func (b *blur) add(us, storeUS int64) {
	b.used.add(us)
	number := storeUS / b.window
	if n := len(b.buckets); n == 0 || b.buckets[n-1].number != number {
		b.buckets = append(b.buckets, held{number: number})
	}
	b.buckets[len(b.buckets)-1].units++
}

// bias is true use minus counted use: above 0 the buckets have forgotten something,
// below they remember too long. storeUS is the region's store clock at us.
func (b *blur) bias(us, storeUS int64) int64 {
	return b.used.count(us) - b.counted(storeUS)
}

// counted is another implementation of quota.Counted: a bucket fades by what overlaps
// still, rounded up.
func (b *blur) counted(storeUS int64) int64 {
	units := int64(0)
	for len(b.buckets) > 0 && b.overlap(b.buckets[0], storeUS) <= 0 {
		b.buckets = b.buckets[1:]
	}
	for _, h := range b.buckets {
		over := min(b.window, b.overlap(h, storeUS))
		units += (h.units*over + b.window - 1) / b.window
	}
	return units
}

func (b *blur) overlap(h held, storeUS int64) int64 {
	return (h.number+2)*b.window - storeUS
}
