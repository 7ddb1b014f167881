// Package clock knows the time of a region's store (Redis TIME) between readings of it, with a bound on the error, and the
// offsets of other regions' clocks.
//
//	estimator.go  samples in, Estimate out; steps and drift. Pure arithmetic.
//	clock.go      Clock: what one process knows of one server's clock, and four metrics
//	peers.go      PeerOffsets: exchanges of four timestamps ▶ how far apart regions are; alarm and gauge
//
// Who runs a script on a server shows its Clock the TIME of the reply: turns of region/state with Observe, decisions with
// Saw. Nothing else asks for TIME, and nothing here starts a goroutine.
//
// While Redis's clock neither steps nor runs more than 500 ppm faster or slower than this process's monotonic clock, the
// true TIME is within Uncertainty of a Reading, however slow, uneven or lossy the path to Redis is. Right after a sample
// the error is at most that sample's round trip, with or without steps. A step that exceeds the uncertainties and 10 ms is
// detected by the first sample after it, and within that drift nothing else is reported as a step.
//
// The package decides nothing: a check reads TIME inside its script. It reads the host's wall clock only to show the
// difference.
package clock
