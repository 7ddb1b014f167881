// Package sync shares usage between regions: it publishes what this region has
// admitted and folds what the others say, so that a limiter can ask at any moment
// what they are believed to have used. Nothing here is on the path of a request
// but a map lookup.
//
// Importers call it meshsync; the standard library has a sync of its own.
package sync
