package quota

// Total is what one region has admitted of a partition in one bucket of time, in
// one epoch: a number that only grows. Two totals of the same bucket and epoch
// are merged by taking the larger; totals of other epochs are added.
type Total struct {
	// Bucket numbers a stretch of the author's store clock: it lasts from
	// Bucket·length to (Bucket+1)·length, µs since the epoch.
	Bucket int64
	// Epoch is the TIME (µs) at which the author's store created the key that the
	// total is counted in; see SameLife.
	Epoch int64
	Units int64 // 0…MaxTotal
}

const (
	// MaxTotal is where a total stops growing: reports may go past every limit,
	// and beyond 4·MaxUnits one more changes no answer.
	MaxTotal = 4 * MaxUnits
	// maxRenewals is how many epochs one life of a key can have.
	maxRenewals = 1000
)

// SameLife reports whether two epochs belong to one life of a key. A store whose
// clock steps back has to count its buckets anew and goes on under the next
// number, epoch+1, while its log goes on as before: nothing was lost. A key that
// was created anew has a TIME of its own.
func SameLife(a, b int64) bool {
	d := a - b
	return -maxRenewals < d && d < maxRenewals
}

// BucketUS is the length of a bucket of the limit's usage totals, µs: W, or with
// n global buckets as much as makes n−1 of them cover W.
func (l *Limit) BucketUS() int64 {
	full := int64(max(l.GlobalBuckets, 2) - 1)
	return (l.WindowUS() + full - 1) / full
}

// Counted is how much of a bucket's units counts at now as used in
// (now−window, now]. start and now are µs of one clock; a bucket that lies ahead
// counts whole.
//
// One as long as the window counts whole until its start is window old, not at all
// once its end is, and in between as much as still overlaps, rounded up: with two
// buckets that is cur + prev·(1−f), which may forget units that are in the window
// still. A shorter one counts whole until its end is window old. So finer buckets
// never forget, and remember for one bucket too long at most: demand of ten times
// the limit uses all of it within a few of them, and fading by the overlap would
// then let 12 % too much through.
func Counted(units, start, length, window, now int64) int64 {
	overlap := start + length + window - now
	switch {
	case overlap <= 0:
		return 0
	case overlap >= length || length < window:
		return units
	default:
		return MulDivUp(units, overlap, length)
	}
}
