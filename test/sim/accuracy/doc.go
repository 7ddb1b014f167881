// Package accuracy says what a global limit really means: how far the regions
// together go over it, how much of it they let be used, and whom they deny without
// need, for a grid of geographies and workloads. It runs the simulator of test/sim
// and judges yes and no against a limiter that knows every region's checks at once.
//
//	Workload ── arrivals ──▶ World (test/sim) ── yes, no ──▶ Judge ──▶ Result
//	                    └──▶ the all-knowing limiter ──────────┘
//	Grid, Focus ──▶ cells ──▶ Run ──▶ grid.csv ──▶ tables and plots of docs/accuracy.md
//
// Everything follows from the seeds that a cell has: the same cell gives the same
// figures on any machine and with any number of workers. Cells that differ only in
// what regiond does (the delay, global_buckets) get the same checks at the same moments.
//
// It does not search for faults, test/sim does, and it takes no time from the host.
package accuracy
