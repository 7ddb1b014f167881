package sim

// forgot notes that all that a region's store counted is lost.
func (j *judge) forgot(s *simRegion) {
	for _, t := range j.order {
		for _, c := range t.regions[s.place].cells {
			c.lost = true
		}
	}
}

// dropped notes that a region's store has dropped a counter that had gone back.
func (j *judge) dropped(s *simRegion, k *keptCounter) {
	for _, t := range j.order {
		for _, c := range t.regions[s.place].cells {
			if t.key == k.key && c.generation == k.buckets[len(k.buckets)-1].Generation {
				c.lost = true
			}
		}
	}
}

// remembers holds a process to what its store has lost, and to what it admitted while
// the store was away: it counts that against its region itself, like a peer's. It must
// have been there when it was admitted, and have seen since that the store began anew.
func (j *judge) remembers(p *process, t *truth) {
	s := p.region
	if len(s.processes) != 1 || s.store.byKey[t.key] == nil || s.store.away {
		return
	}
	least := int64(0)
	for _, c := range t.regions[s.place].cells {
		if p.born < c.began && (c.lost || c.generation == p.self.Boot) {
			least += max(0, c.log.since(j.w.now+forgets-t.limit.Window)-rounded(c.log.units()))
		}
	}
	if j.x.lost < least {
		j.violated("LOC-F lost", p, "%s: at least %d units that still count are lost to the store, and %d are reckoned with", t.tenant, least, j.x.lost)
	}
}
