// Package clock tells the region's time: what its Redis says TIME is, as known
// between two looks at it, and how wrong that may be.
//
//	Redis TIME ──sample──▶ Estimator ──▶ Tracker ──Reading──▶ whoever asks
//	            (pure arithmetic)      (one goroutine)
//
// What it promises: as long as Redis's clock neither steps nor runs more than
// the allowance (500 ppm) faster or slower than this process's monotonic clock,
// the true TIME is within Uncertainty of the one it gives, whatever the path to
// Redis does: slow, uneven, lossy. Right after a sample the error is never more
// than that sample's round trip, steps or no steps. A step beyond the uncertainties and
// a threshold (10 ms) is found by the first sample behind it, and within that
// drift no other sample is ever taken for one.
//
// PeerOffsets tells how far the clocks of other regions are from ours, from
// exchanges of four timestamps on the bus. It promises the same: while nobody
// moves a clock the truth is within Uncertainty, whatever the path does, and
// at most eight exchanges after somebody did it is so again.
//
// What it does not: decide anything. A check reads TIME inside its script; this
// package serves what lies outside scripts, and tells people when a clock moves.
// It never looks at the host's wall clock except to show the difference.
package clock
