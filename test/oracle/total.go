package oracle

import "github.com/regiond/regiond/quota"

// count charges units to the usage total of a global limit if they are charged,
// and returns what it is: the sum of the charges since its bucket began. Time
// that falls by less than a bucket stays in it; time that steps further back
// begins another, as does time that goes on.
func (r *Region) count(name string, time int64, l *quota.Limit, units int64, charge bool) quota.Total {
	t := r.totals[name]
	if !charge {
		return t
	}
	at := time / l.BucketUS()
	if t == (quota.Total{}) {
		t = quota.Total{Epoch: time, Bucket: at}
	}
	if at < t.Bucket-1 {
		t = quota.Total{Epoch: t.Epoch + 1, Bucket: at}
	}
	if at > t.Bucket {
		t = quota.Total{Epoch: t.Epoch, Bucket: at}
	}
	t.Units = min(t.Units+units, quota.MaxTotal)
	r.totals[name] = t
	return t
}
