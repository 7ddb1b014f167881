// Package clock knows the time of a region's store (Redis TIME) between readings of it, with a bound on the error, and the
// offsets of other regions' clocks.
//
//	estimator.go  samples in, Estimate out; steps and drift. Pure arithmetic.
//	clock.go      Clock: what one process knows of one server's clock, and four metrics
//	peers.go      PeerOffsets: exchanges of four timestamps ▶ how far apart regions are; alarm and gauge
//
// Turns of region/state show a Clock the TIME of their replies. A call that rests on data which a step of the clock would
// age or keep alive carries a Fence. Nothing else asks for TIME, and nothing here starts a goroutine.
//
// While Redis's clock neither steps nor runs more than 2 % faster or slower than this process's monotonic clock, and that
// drift changes by less than 1000 ppm in a minute, the true TIME is within Uncertainty of a Reading, however slow, uneven or
// lossy the path to Redis is. Right after a sample the error is at most that sample's round trip, whatever the clock does. A
// step that exceeds the uncertainties and a tenth of the time since the last sample is found by the next one, any above 10 ms
// as soon as the drift is measured again; another drift up to 2 % is not reported as a step.
//
// The package decides nothing: a check reads TIME inside its script. It reads the host's wall clock only to show the
// difference. What region/state does, which decides by that difference once, when a region's first process starts, is there.
package clock
