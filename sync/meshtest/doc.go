// Package meshtest is a bus in memory for tests and demos of the mesh: a network
// whose links can be cut, slow, lossy, repeating and out of order. Nothing in it runs
// by itself, so it works in synctest bubbles.
package meshtest
