// Package view says how much one process can see: which regions count on each
// other, in which mode it therefore answers, and how many units it may hold.
//
//	                Observe: every 50 ms, and when something changed
//	Processes ──▶ judge ──▶ standing of each region ──▶ candidate M ──▶ agreed? ──▶ View
//	(bus, gossip)  finding    hysteresis, memory          advertised      M in use     │
//	                                                                                   ├─ Mode, Reason
//	Topologies in play ──▶ division: the parts of a limit ─────────────────────────────┼─ Ceiling
//	                                                                                   └─ Peers, Explain
//
// It promises that regions which use a group of more than themselves use the same
// one as its other members, as soon as their beats have been delivered: groups are
// equal or disjoint, and the parts of a limit are promised once.
//
// Everything here is pure: no goroutine, no clock, no I/O. A Viewer is not safe for
// concurrent use and belongs to one loop. A View never changes once Observe has
// returned it and may be read from anywhere; asking it for a ceiling allocates
// nothing for the limits that Configure was told of.
package view
