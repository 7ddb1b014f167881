package oracle

import "github.com/regiond/regiond/quota"

// count charges units to the usage total of a global limit if they are charged,
// and returns what it is: the sum of the charges since its bucket began. Time
// that falls by less than a bucket stays in it; time that steps further back
// begins another, as does time that goes on.
func (r *Region) count(name quota.CounterKey, time int64, l *quota.Limit, units int64, charge bool) quota.Counter {
	t := r.totals[name]
	if !charge {
		return t
	}
	at := time / l.WindowUS()
	if t == (quota.Counter{}) {
		t = quota.Counter{Generation: time, Bucket: at}
	}
	if at < t.Bucket-1 {
		t = quota.Counter{Generation: t.Generation + 1, Bucket: at}
	}
	if at > t.Bucket {
		t = quota.Counter{Generation: t.Generation, Bucket: at}
	}
	t.Units = min(t.Units+units, quota.MaxCounter)
	r.totals[name] = t
	return t
}
