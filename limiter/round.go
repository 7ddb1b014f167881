package limiter

import "github.com/regiond/regiond/quota"

// round is what some requests need while they are decided. It is kept for others: a
// decision then allocates what it returns and the names of its keys, and little else.
type round struct {
	request  quota.Request // of a round of one
	queries  []query
	names    []string // of all keys
	usage    []quota.CounterKey
	calls    []Call
	asked    []int // which query each call is of
	verdicts []Verdict
	outcomes []quota.Outcome // of the queries
	held     bool            // a store may still read the calls
}

func (l *Limiter) begin() *round {
	r, ok := l.rounds.Get().(*round)
	if !ok {
		r = &round{}
	}
	return r
}

// end keeps a round, without what it refers to.
func (l *Limiter) end(r *round) {
	if r.held {
		return
	}
	clear(r.queries)
	clear(r.names)
	clear(r.usage)
	clear(r.calls)
	clear(r.outcomes)
	r.queries, r.names, r.usage, r.calls, r.asked = r.queries[:0], r.names[:0], r.usage[:0], r.calls[:0], r.asked[:0]
	r.request = quota.Request{}
	l.rounds.Put(r)
}

func (r *round) keys(p *KeyPlan, tenant, policy string, dims quota.Dimensions) []string {
	first := len(r.names)
	r.names = p.appendKeys(r.names, tenant, policy, dims)
	return r.names[first:len(r.names):len(r.names)]
}

func (r *round) counters(p *KeyPlan, keys []string, tenant, policy string) []quota.CounterKey {
	first := len(r.usage)
	r.usage = p.appendCounters(r.usage, keys, tenant, policy)
	return r.usage[first:len(r.usage):len(r.usage)]
}
