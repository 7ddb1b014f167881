package sim

import (
	"github.com/regiond/regiond/quota"
	"github.com/regiond/regiond/region/members"
	"github.com/regiond/regiond/region/view"
)

// noteStates notes the hard states that show in a view: what was seen, whatever was
// done to bring it about.
func (j *judge) noteStates(p *process, v *view.View, reason quota.Reason) {
	switch reason {
	case quota.ReasonOneWay:
		j.w.reached(ackOnly)
	case quota.ReasonViewsDiffer:
		j.w.reached(viewsDiffered)
	case quota.ReasonProcessPaused:
		j.w.reached(frozenDistrusts)
	}
	for i := range v.Peers {
		peer := &v.Peers[i]
		if peer.State == members.StateWaiting && peer.RemainingMS > (2*view.FirstWait).Milliseconds() {
			j.w.reached(flapped)
		}
		if len(peer.Processes) > 1 {
			j.w.reached(secondJoined)
		}
		for n := range peer.Processes {
			j.noteState(peer, &peer.Processes[n], reason)
		}
	}
	if spelled := v.Heartbeat.Weights; spelled != nil && v.Members.Len() == len(v.Regions) {
		j.w.reached(smallerParts)
	}
	if reason != quota.ReasonNone && j.bridges(p) {
		j.w.reached(bridge)
	}
}

// noteState notes what a process looks like to another.
func (j *judge) noteState(peer *members.RegionRow, q *members.ProcessRow, reason quota.Reason) {
	switch {
	case q.State == members.StateLeft:
		j.w.reached(leftAsPlanned)
	case q.State == members.StateDead:
		j.w.reached(diedUnannounced)
	case reason == quota.ReasonPeerSilent && peer.State == members.StateSilent && q.Gossip == members.Alive:
		j.w.reached(busDeadGossipAlive)
	}
	if q.Gossip != members.Dead || q.HeardMS == members.Never || q.HeardMS > members.SilentAfter.Milliseconds() {
		return
	}
	j.w.reached(misreported) // it is received from, so it is not dead
	if reason == quota.ReasonNone {
		j.w.reached(gossipDeadBusAlive)
	}
}

// bridges reports whether a process receives two regions that do not receive each other.
func (j *judge) bridges(p *process) bool {
	for _, a := range j.w.regions {
		for _, b := range j.w.regions[a.place+1:] {
			if a != p.region && b != p.region && j.receivedLately(p.region, a) && j.receivedLately(p.region, b) &&
				!j.receivedLately(a, b) && !j.receivedLately(b, a) {
				return true
			}
		}
	}
	return false
}

// receivedLately reports whether a process of a region received from one of another within SilentAfter.
func (j *judge) receivedLately(s, of *simRegion) bool {
	for _, p := range s.processes {
		for _, q := range of.processes {
			if at, ok := p.known.lastFrom[q]; ok && j.w.now-at <= members.SilentAfter {
				return true
			}
		}
	}
	return false
}
