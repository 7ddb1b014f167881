// Package meshtest is what tests and demos of the mesh run on: a network in memory
// whose links can be cut, slow, lossy, repeating and out of order, and totals kept
// in plain maps. Nothing in it runs by itself, so it works in synctest bubbles.
package meshtest
