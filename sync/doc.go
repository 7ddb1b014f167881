// Package sync shares usage between regions: it publishes what this region has
// admitted and merges what the others publish, so that a limiter has an estimate of
// their usage at any moment. Nothing here is on the path of a request
// but a map lookup.
//
// Importers call it meshsync; the standard library has a sync of its own.
package sync
