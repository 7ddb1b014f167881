// Package demo is what `regiond demo` needs besides three whole daemons: the
// topology that they share, cuts between them, the listener through which another
// terminal makes and heals those cuts, and the table that shows what follows.
//
//	regiond demo cut eu-west ──HTTP──▶ Control ──▶ Cuts ◀── Bus        usage, beats, digests
//	                                                    ◀── Transport  gossip
//
// A cut lives between a daemon and its network: nothing in the daemon knows that
// this is a demo. Only `regiond demo` and its tests use it.
package demo
