package limiter

import "sync"

// openReservations are those that this process has made and knows no end of, for metrics alone. One that another process settles
// counts as open until its time is over.
type openReservations struct {
	mu    sync.Mutex
	byID  map[int64]openReservation // guarded by mu
	swept int                       // how many there were after the last sweep
}

type openReservation struct {
	policy string
	units  int64
	endsUS int64
}

// mostOpen bounds the reservations that are followed, 100 bytes each. Those beyond are counted when they are made and settled, and
// not in between.
const mostOpen = 1 << 17

func newOpenReservations() *openReservations {
	return &openReservations{byID: map[int64]openReservation{}}
}

// add follows a reservation, or gives it another end. expired is called for those that are over, whenever there are twice as many as
// after the last look.
func (o *openReservations) add(number int64, r openReservation, nowUS int64, expired func(openReservation)) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.byID) >= 2*o.swept+64 {
		o.sweep(nowUS, expired)
	}
	if len(o.byID) < mostOpen {
		o.byID[number] = r
	}
}

// end takes note of a settle.
func (o *openReservations) end(number int64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.byID, number)
}

// extend gives a reservation that is followed another end.
func (o *openReservations) extend(number, endsUS int64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if r, ok := o.byID[number]; ok {
		r.endsUS = endsUS
		o.byID[number] = r
	}
}

// count is how many are open, by policy.
func (o *openReservations) count(nowUS int64, expired func(openReservation)) map[string]int {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.sweep(nowUS, expired)
	open := map[string]int{}
	for _, r := range o.byID {
		open[r.policy]++
	}
	return open
}

func (o *openReservations) sweep(nowUS int64, expired func(openReservation)) {
	for number, r := range o.byID {
		if r.endsUS <= nowUS {
			delete(o.byID, number)
			expired(r)
		}
	}
	o.swept = len(o.byID)
}
