package ledger

import (
	"time"
)

// The outbox of a shard is a list of what our own region has in series whose
// totals were not published whole: first those that are urgent, newest first, and
// behind them the others in the order in which they changed. A series is listed
// exactly while something of it is unpublished.
//
//	first ─▶ urgent ─▶ urgent ─▶ waiting (oldest) ─▶ … ─▶ waiting ◀─ last

// outboxState says where a series is. It gets listed when an own total grows, by
// Record or Local, while there are peers; urgent when more than ε of L is
// unpublished or a peer's total of it arrives; and idle when all was taken, or came
// back from others who have it, or is over.
type outboxState uint8

const (
	idle outboxState = iota
	waiting
	urgent
)

// epsilonInverse is 1/ε: peers together may be left behind by 1 % of L before a
// change is urgent.
const epsilonInverse = 100

// Urgent has something in it when Take would find something urgent. It holds at
// most one.
func (l *Ledger) Urgent() <-chan struct{} { return l.urgent }

func (l *Ledger) signal() {
	select {
	case l.urgent <- struct{}{}:
	default:
	}
}

// Unsent is the age of the oldest change that was not taken; 0 when there is none. One
// in a bucket ahead of our store's clock, which stepped back, is as old as the last Take.
func (l *Ledger) Unsent() time.Duration {
	if l.listed.Load() == 0 {
		return 0
	}
	nowUS := l.nowUS()
	oldest := nowUS
	for i := range l.shards {
		oldest = min(oldest, l.shards[i].oldest(nowUS))
	}
	return time.Duration(nowUS-oldest) * time.Microsecond
}

// oldest is since when a change of the shard waits; nowUS when none does.
func (sh *shard) oldest(nowUS int64) int64 {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	for i := sh.first; i != 0; {
		o := sh.owns.at(i)
		nowUS = min(nowUS, o.since)
		if o.state == waiting {
			break // the oldest of these is the first
		}
		i = o.after
	}
	return nowUS
}

// changed notes that a total of our own has grown and reports whether its series
// became urgent by that.
func (sh *shard) changed(b *ownBucket, c *ownCell) (becameUrgent bool) {
	if b.peers < 1 {
		c.taken = c.units
		sh.settle(b.own)
		return false
	}
	i := b.own
	o := sh.owns.at(i)
	o.limitUnits = b.limitUnits
	behind := sh.unpublished(i)
	return sh.enlist(i, b.nowUS, behind > max(1, b.limitUnits/(epsilonInverse*b.peers)))
}

// unpublished is how much of our own totals was not taken yet.
func (sh *shard) unpublished(own uint32) (units int64) {
	for c := range sh.ownOf(own) {
		units += c.units - c.taken
	}
	return units
}

// settle takes a series off the list when nothing of it is unpublished any more.
func (sh *shard) settle(i uint32) {
	if sh.owns.at(i).state != idle && sh.unpublished(i) == 0 {
		sh.unlist(i)
	}
}

// putOff takes a listed series off the list or, while something of it is unpublished,
// puts it to the end as if that had changed now: for what cannot be published yet.
func (sh *shard) putOff(i uint32, nowUS int64) {
	sh.unlist(i)
	if sh.unpublished(i) > 0 {
		sh.enlist(i, nowUS, false)
	}
}

// enlist puts a series on the list, or to its front once it is urgent, and reports
// whether it became so now.
func (sh *shard) enlist(i uint32, nowUS int64, isUrgent bool) bool {
	o := sh.owns.at(i)
	since := nowUS
	switch {
	case o.state == urgent || o.state == waiting && !isUrgent:
		return false
	case o.state == waiting:
		since = o.since
		sh.unlist(i)
	}
	o.since = since
	if !isUrgent {
		o.state, o.before, o.after = waiting, sh.last, 0
	} else {
		o.state, o.before, o.after = urgent, 0, sh.first
	}
	*sh.afterOf(o.before), *sh.beforeOf(o.after) = i, i
	sh.listed.Add(1)
	return isUrgent
}

func (sh *shard) unlist(i uint32) {
	o := sh.owns.at(i)
	*sh.afterOf(o.before), *sh.beforeOf(o.after) = o.after, o.before
	o.state, o.before, o.after = idle, 0, 0
	sh.listed.Add(-1)
}

// afterOf and beforeOf are the links to the neighbours of a series; those of 0,
// which is none, are the ends of the list.
func (sh *shard) afterOf(i uint32) *uint32 {
	if i == 0 {
		return &sh.first
	}
	return &sh.owns.at(i).after
}

func (sh *shard) beforeOf(i uint32) *uint32 {
	if i == 0 {
		return &sh.last
	}
	return &sh.owns.at(i).before
}
