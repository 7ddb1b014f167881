// Package global joins the rooms through which one process knows of the other
// regions: the view says whom it may count on, the ledger what they have used, the
// mesh and gossip who is there.
//
//	limiter ◀── Ceilings ◀── sight (who) ◀── Lookout ◀── gossip
//	               ▲                            ▲
//	               └── ledger (how much) ◀──▶  mesh
//	                      ▲
//	                      └── Rereads ◀── the region's store
//
// Nothing in it opens a connection or starts a goroutine, and each part can be driven
// step by step, so a simulation joins the same rooms in the same way as the daemon.
// It is for those two; rooms do not import it.
package global
