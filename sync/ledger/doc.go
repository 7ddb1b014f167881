// Package ledger holds what each region has admitted, and nothing else: counters of
// partitions in buckets of time and generations, merged by maximum.
//
//	Record, Local ──▶ own counters ──▶ outbox ──▶ Take            (changes)
//	  (deciding)          │  └──────────────▶ Live              (snapshots)
//	                      ▼
//	                  Estimates ◀── peers' counters ◀── Fold ◀──  (messages)
//	                      │
//	                   Sweep ──▶ Overshoot, free memory
//
// What it holds depends on which counters it was given, never on how often, in what order
// or by which process. A counter is named by its series, region, bucket and generation; of
// two with one name the larger stays, and those of different names are added. So messages
// may be lost, repeated and late, and the next one that arrives makes up for it. Its memory is
// bounded, and nothing live is ever evicted: what does not fit is rejected, counted, and
// reported by Full.
//
// A bucket counts whole for a window from its beginning, and then fades as it grew: each counter
// keeps at what times we heard that it had how much (growth). Other forms, simulated with random,
// repeated and moving bursts at up to ten times a limit, let a window go so far over it: an even fade 53 %,
// 16 even slots with a line in each 13 %, a line through seven free points 8 % more where it had to leave some out;
// 64 slots by 64 levels 3 %, as the whole log does, with 0.5 % less use of the limit.
//
// It does not decide, publish, or know about processes. It starts no goroutine and waits
// only for its own locks.
package ledger
