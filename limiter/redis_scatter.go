package limiter

import (
	"context"
	"sync"
)

// scatter asks the servers of several calls at the same time. What fails on one
// of them is the error of its verdicts alone.
func (s *RedisStore) scatter(ctx context.Context, calls []Call, verdicts []Verdict) error {
	parts := map[*node]*part{}
	for i := range calls {
		n, err := s.fleet.of(ctx, calls[i].slotKey())
		if err != nil {
			verdicts[i].Err = err
			continue
		}
		if parts[n] == nil {
			parts[n] = &part{}
		}
		parts[n].add(i, &calls[i])
	}
	var wg sync.WaitGroup
	for n, p := range parts {
		wg.Go(func() {
			p.gather(n.decide(ctx, p.calls, p.verdicts), verdicts)
		})
	}
	wg.Wait()
	return nil
}

// part is some of the calls of a batch.
type part struct {
	places   []int // places[i] is where calls[i] stands in the batch
	calls    []Call
	verdicts []Verdict
}

func (p *part) add(place int, c *Call) {
	p.places, p.calls, p.verdicts = append(p.places, place), append(p.calls, *c), append(p.verdicts, Verdict{})
}

// gather puts verdicts back into the batch's; err, if any, is theirs.
func (p *part) gather(err error, verdicts []Verdict) {
	for i, place := range p.places {
		verdicts[place] = p.verdicts[i]
		if err != nil {
			verdicts[place] = Verdict{Err: err}
		}
	}
}
