package ledger

import "time"

// Estimates fills out with what each region is believed to have used of a partition
// in the window of windowUS that ends at a moment of our monotonic clock: out[i] for the
// region that Region gave i; what does not fit in out is left out. out[0], our own, is 0.
//
// All series of the id count, whatever the length of their windows and buckets is. What
// was counted for another window counts whole while any of its bucket may lie in this
// one: never too little, as long as it is held, and that is for its own window.
//
// lost is what of our own totals our store no longer holds, or never held: it has
// to be counted like a peer's, or a store that forgets hands out its limit again.
func (l *Ledger) Estimates(id uint64, windowUS int64, at time.Duration, out []int64) (lost int64) {
	clear(out)
	atUS := at.Microseconds()
	sh := l.shard(id)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	for i := sh.index[id]; i != 0; {
		s := sh.series.at(i)
		sp := l.shapes.at(s.shape)
		for c := range sh.peersOf(s) {
			if r := c.region(); r < len(out) {
				out[r] += sp.countedIn(windowUS, c.units(), c.place, atUS)
			}
		}
		for c := range sh.ownOf(s.own) {
			if sh.owns.at(s.own).lost(c.epoch, l.boot) {
				lost += sp.countedIn(windowUS, c.units, c.place, atUS)
			}
		}
		i = s.next
	}
	return lost
}
