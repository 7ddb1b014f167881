package ledger

// told takes in the life that the store is in for a series in which we have totals,
// and counts what it no longer holds and did before. Totals whose windows are over
// are no loss, since their key may have expired; and neither is what Local admitted,
// which the store never held.
func (l *Ledger) told(sh *shard, i uint32, nowUS, life, storeUS int64) {
	s := sh.series.at(i)
	o := sh.owns.at(s.own)
	before := *o
	o.tell(life, storeUS)
	if before.known && before.life == o.life {
		return
	}
	sp, units := l.shapes.at(s.shape), int64(0)
	for c := range sh.ownOf(s.own) {
		if !before.lost(c.epoch, l.boot) && o.lost(c.epoch, l.boot) {
			units += sp.counted(c.units, c.place, nowUS)
		}
	}
	if units > 0 {
		l.metrics.lost(units)
	}
}
