// Package state keeps in a region's Redis what must outlive its processes: the topology in force with its revision, which
// processes of the region are alive, with the regions that each receives from, and the epoch of the data. It is written by
// one script, once a second by each process and whenever something changes. Each turn is also the sample of Redis's clock.
//
//	file ── Adopt ─▶ State ── region.lua ─▶ Redis: hash rl:region
//	view ── See, Settle ─▶ │                    topology        JSON of Topology
//	loans ◀── Store ───────┤                    epoch           number, TIME of the last loss
//	view ◀── Snapshot ─────┤                    boot:instance   TIME, turn, regions received, epoch
//	clock.Clock ◀── TIME ──┘                hash rl:region:{N} on each other primary: boot:instance alone
//
//	state.go     a turn, and what it publishes
//	hash.go      one hash: the script, and whether its server has lost data
//	epoch.go     whether what the store holds is whole and its clock even
//	siblings.go  who is alive
//	topology.go  which file is in force, and the least shares of those before
//
// Siblings are judged by what they share, not by the network between them. A reader counts by its own clock for how long
// an entry has not changed, so no clock has to agree with another.
package state
