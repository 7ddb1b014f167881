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
// keeps when it had how much (growth). What a message adds was admitted just before it. Where earlier
// messages are missing (a process that has started, a gap, a forwarded counter) it may be older, but counts
// from now on too, until a snapshot brings the path that the counter's own region has. Only that one is believed:
// it could as well publish less.
//
// The buckets of a limit with a calendar are its periods. One counts whole in an estimate for its number and in no other, so no clock
// matters to it (PeriodEstimates); when it ends says for how long it is kept.
//
// It does not decide, publish, or know about processes. It starts no goroutine and waits
// only for its own locks.
package ledger
