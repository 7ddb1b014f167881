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
// It does not decide, publish, or know about processes. It starts no goroutine and waits
// only for its own locks.
package ledger
