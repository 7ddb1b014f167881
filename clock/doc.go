// Package clock estimates the time of a region's store (Redis TIME) between
// readings of it, with a bound on the error, and the offsets of other regions'
// clocks.
//
//	Redis TIME ──sample──▶ Estimator ──▶ Tracker ──▶ Reading
//	            (pure arithmetic)    (one goroutine)
//
// While Redis's clock neither steps nor runs more than 500 ppm faster or slower
// than this process's monotonic clock, the true TIME is within Uncertainty of a
// Reading, however slow, uneven or lossy the path to Redis is. Right after a
// sample the error is at most that sample's round trip, with or without steps. A
// step that exceeds the uncertainties and 10 ms is detected by the first sample
// after it, and within that drift nothing else is reported as a step.
//
// PeerOffsets estimates how far the clocks of other regions are from ours, from
// exchanges of four timestamps. Its bound holds in the same way, and at most eight
// exchanges after a clock was moved it holds again.
//
// The package decides nothing: a check reads TIME inside its script. It reads the
// host's wall clock only to show the difference.
package clock
