// Package accuracy measures how exact global limits are: how far all regions together
// exceed one, how much of it they admit, and which denials were needless, for a grid of
// geographies and workloads. It runs the simulator of test/sim and compares its
// decisions with those of a limiter that knows every region's checks at once.
//
//	Workload ── arrivals ──▶ World (test/sim) ── yes, no ──▶ Judge ──▶ Result
//	                    └──▶ the all-knowing limiter ──────────┘
//	Grid, Focus ──▶ cells ──▶ Run ──▶ grid.csv ──▶ tables of docs/accuracy.md
//
// Everything follows from the seeds that a cell has: the same cell gives the same
// figures on any machine and with any number of workers. Cells that differ only in
// what regiond does (the delay, max_overshoot) get the same checks at the same moments.
//
// It does not search for faults, test/sim does, and it takes no time from the host.
package accuracy
