// Package loans runs the loans of bounded limits in one process: which partitions are
// short, what their region wants of the others, and what it lends, returns and extends.
// Package quota/loan has the protocol, why its bound holds, and the policy.
//
//	limiter ── Asked ─▶ partitions (a few bytes each, nothing runs for them)
//	                        │ short
//	bus ───── Receive ─▶ Tender ── Step: one call for all that are due ──▶ Store
//	    ◀─ Network ───────┘              reply ─▶ loan.Planner ─▶ operations, want
//
// Nothing here is needed for the bound: a Tender may stop, forget, or run twice for a
// partition. Loans end by themselves.
package loans
