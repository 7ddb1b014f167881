// Package ledger holds what each region has admitted, and nothing else: counters of
// partitions in buckets of time and generations, merged by maximum.
//
//	Record, Local ──▶ own counters ──▶ outbox ──▶ Take            (changes)
//	  (deciding)          │  └──────────────▶ Live, Roll        (snapshots)
//	                      ▼
//	                  Estimates ◀── peers' counters ◀── Fold ◀──  (messages)
//	                      │
//	                   Sweep ──▶ Overshoot, room for others
//
// What it promises: the units it holds depend on which counters it was told, never
// on how often, in what order or by whom. A total is named by its series, region,
// bucket and generation; of two with one name the larger stays, and those of different
// names are added. So messages may be lost, repeated and late, and the next one
// that arrives heals it. Its memory is bounded, and nothing live is ever evicted:
// what does not fit is turned away, counted, and Full says so.
//
// What it does not: decide, publish, or know who is there. It starts no goroutine
// and waits for nothing but its own locks, of which a question takes one for as
// long as it takes to walk a handful of counters.
package ledger
