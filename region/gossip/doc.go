// Package gossip knows which regiond processes exist: in which region, since
// when, under which configuration, and whether one that is gone left or died.
//
//	seeds ──rejoin, for ever──▶ memberlist ──delegates, copies──▶ roster ──▶ Members, Changed
//	                               │                                 ├─────▶ Drift
//	                               └─ a stranger, a namesake: refused └─────▶ Conflict
//
// What it promises: a process that can be reached is in everybody's Members
// within ten seconds, however long it could not be reached before; who says
// goodbye is Left, who just stops is Dead; a process of another cluster, with
// another key, or of a region that the topology does not have never appears;
// and of two processes with one name the one that started later finds out.
//
// What it does not: decide. It is slow (a crash takes some seconds to be
// noticed) and partly blind (a path that is cut one way is not reported when
// others lead around it). Limits depend on the age of what the bus has brought;
// this package explains that age, names those who left, and finds newcomers. A
// message can be replayed by whoever recorded it, so nothing here may ever raise
// a limit.
//
// Everything exported is safe for concurrent use, and nothing but Run waits for
// the network.
package gossip
