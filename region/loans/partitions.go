package loans

import (
	"strings"

	"github.com/regiond/regiond/internal/expiring"
	"github.com/regiond/regiond/quota"
	"github.com/regiond/regiond/quota/loan"
)

// active is what the request path keeps of a partition that was asked for lately.
type active struct {
	key     quota.CounterKey
	asked   int64 // units since they were taken last
	charged int64
	denied  bool
	woken   bool // it is in partitions.woken, or tended
}

// partitions are those that were asked for lately, at most so many; the one that is asked
// for least goes first. Safe for concurrent use.
type partitions struct {
	all *expiring.Map[uint64, active]
}

// keptFor is how long a partition is kept after it was asked for last, µs: what it asked
// before is over for the planner, too.
const keptFor = 10_000_000

// add counts one decision about the partition with an id and a key that is not kept, and reports whether the partition has to be woken.
func (p *partitions) add(id uint64, key *quota.CounterKey, a *loan.Ask, nowUS int64) bool {
	s := p.all.Shard(id)
	s.Lock()
	defer s.Unlock()
	e := s.Get(id, nowUS)
	if e == nil {
		if !s.Take(1, nowUS) && !s.Evict() {
			return false
		}
		e = &expiring.Entry[active]{Value: active{key: cloneKey(key)}}
		s.Put(id, e)
	}
	e.Ends = nowUS + keptFor
	v := &e.Value
	v.asked += a.Units
	v.denied = v.denied || a.Denied
	if a.Charged {
		v.charged += a.Units
	}
	if v.woken || !a.Short() {
		return false
	}
	v.woken = true
	return true
}

// take returns what was asked for since it was called last; false when the partition is not
// known. rest says that it is tended no more, and has to be woken again.
func (p *partitions) take(id uint64, nowUS int64, rest bool) (v active, ok bool) {
	s := p.all.Shard(id)
	s.Lock()
	defer s.Unlock()
	e := s.Get(id, nowUS)
	if e == nil {
		return active{}, false
	}
	v = e.Value
	e.Value.asked, e.Value.charged, e.Value.denied, e.Value.woken = 0, 0, false, !rest
	return v, true
}

// cloneKey keeps what a request owns. Policy and limit are the configuration's.
func cloneKey(k *quota.CounterKey) quota.CounterKey {
	c := *k
	c.Tenant, c.Partition = strings.Clone(k.Tenant), strings.Clone(k.Partition)
	return c
}
