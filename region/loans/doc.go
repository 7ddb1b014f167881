// Package loans runs the loans of bounded limits in one process: which partitions are
// short, what their region wants of the others, and what it lends, returns and extends.
// Package quota/loan has the protocol, why its bound holds, and the policy.
//
// Nothing here is needed for the bound: a Tender may stop, forget, or run twice for a
// partition. Loans end by themselves.
package loans
