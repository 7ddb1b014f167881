// Package state keeps in a region's Redis what must outlive its processes: the topology in force with its revision, which
// processes of the region are alive, with the regions that each receives from, and the epoch of the data. It is written by
// one script, once a second by each process and whenever something changes. Each turn is also the sample of Redis's clock.
//
//	file ── Adopt ─▶ State ── region.lua ─▶ Redis: hash rl:region
//	view ── See, Settle ─▶ │ (Agree)            topology        JSON of Topology
//	loans ◀── Store ───────┤                    epoch           number, TIME of the last loss and of its begin, the first, unwatched,
//	                       │                                    TIME and epoch of lost data
//	                       │                    server          run_id, TIME when it was found, entries that are asked
//	view ◀── Snapshot ─────┤                    watched         TIME, and by how much it was ahead of a host's clock
//	clock.Clock ◀── TIME ──┘                    boot:instance   TIME, turn, regions received, epoch
//	                                        hash rl:region:{N} on each other primary: the last three alone
//
//	state.go     a turn, and what it publishes
//	hash.go      one hash: the script, whether its server has lost data, and who is alive
//	epoch.go     whether what the store holds is whole and its clock even
//	topology.go  which file is in force, and the least shares of those before
//
// Another server may lack writes that the one before had confirmed: a replica that was behind, or one started without its
// newest data. Its first turn begins an epoch, and nothing is admitted under a bound until each process that the hash names
// has found its newest turn there. If one has not done so within 2 s it is a loss. The first call that decides on a server
// takes such a turn before it, since the server does not know the script.
//
// What is not covered: writes after the newest turn of every process, which no entry shows; the usage counters and loans of a
// partition show them to a process that knows these. So are those of a process that was away for more than a minute when the
// last other left. The first process and the store lost together, while no peer sends a message that shows an epoch of before:
// an empty hash opens at once. In a cluster, the time until the next turn after another primary than that of Key was replaced.
// A step of the clock that the host's clock makes too, while no process runs.
//
// Siblings are judged by what they share, not by the network between them. A reader counts by its own clock for how long
// an entry has not changed, so no clock has to agree with another.
package state
