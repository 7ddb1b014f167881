// Package overrides has the overrides of tenants: what is set at run time in place of what the topology says, in all
// processes of a region, and in its Redis, which keeps them.
//
//	edit.go     an edit: what it may say, and when it is in force
//	overlay.go  what this process knows of all of them
//	table.go    the same in memory, small
//	replicate.go  how they come to other regions
//	keeper.go   where the region keeps them: Redis, or this process
//
//	PUT ─▶ Edit ─▶ keeper (compare and set) ─▶ table ─▶ Of, for each decision
//	                  │                          ▲
//	                  └── log of edits ── Run ───┘ of siblings
//
// A larger version always wins, wherever it comes from: what is read twice, late or in another order changes nothing. So a restart,
// a sibling, a cut, an emptied Redis and an edit on both sides of a cut need no case of their own. A clock that steps moves the
// ends of overrides alone: a version counts first, and its time decides only between edits that did not see each other. It
// decides nothing about limits.
package overrides
