// Package gossip is the membership of a deployment: which regiond processes
// exist, in which region, since when, under which configuration, and whether
// they answer.
//
// A process that can be reached is in every other process's Members within ten
// seconds, however long it was unreachable before. A process of another
// cluster, with another key, or of a region that the topology does not list
// never appears. The name of a memberlist node contains the start time of its
// process, so two processes with one instance name are two members; package
// sync detects them, and planned leaves, on the bus.
//
// The package explains and decides nothing. It is slow (a crash takes some
// seconds to be noticed) and partly blind (a path that is cut in one direction
// is not reported when others lead around it). Messages can be recorded and
// replayed, so nothing learned here may ever raise a limit.
//
// Everything exported is safe for concurrent use, and only Run waits for the
// network.
package gossip
