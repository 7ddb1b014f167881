package limiter

import "github.com/regiond/regiond/quota"

// memoryTotal is what MemoryStore keeps of a usage total: the Go twin of
// lua/totals.lua. Earlier buckets are not kept, since nobody reads them back.
type memoryTotal struct {
	quota.Counter
	expires int64 // TIME after which peers do not count it any more
}

// add charges units at TIME. A clock that falls by less than a bucket is waited
// out in the newest; one that steps further back has its buckets counted anew.
func (t *memoryTotal) add(l *quota.Limit, time, units int64) {
	bucket := time / l.BucketUS()
	switch {
	case t.Generation == 0:
		t.Generation, t.Bucket = time, bucket
	case bucket > t.Bucket:
		t.Bucket, t.Units = bucket, 0
	case bucket < t.Bucket-1:
		t.Generation, t.Bucket, t.Units = t.Generation+1, bucket, 0
	}
	t.Units = min(t.Units+units, quota.MaxCounter)
}

// count charges the call to its totals if it was charged, and tells in either
// case what they are now.
func (m *MemoryStore) count(s *memoryShard, c *Call, v *Verdict, charged bool, now int64) {
	if len(c.Counters) == 0 {
		return
	}
	n := 0
	for i, l := range c.Plan.limits {
		if l.Scope != quota.ScopeGlobal {
			continue
		}
		key := c.Counters[n]
		n++
		t := s.totals[key]
		if t != nil && t.expires <= now && !m.keep {
			delete(s.totals, key)
			t = nil
		}
		if charged {
			if t == nil {
				t = &memoryTotal{}
				s.totals[key] = t
			}
			t.add(l, now, c.Cost)
			t.expires = now + ttlOf(l).Microseconds()
		}
		if t != nil {
			v.Limits[i].Counter = t.Counter
		}
	}
}
