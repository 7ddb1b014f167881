// Package loansim visits every state of small worlds of package loan and judges them by true time, which no region
// knows. exhaustive.go has the worlds and what may happen in them, alike.go finds states that behave alike, periods.go has the
// worlds of a limit with a calendar. few.go compares the planner's loans with shares that are not lent. Larger worlds, with the
// product's tenders, stores and messages, are the strict worlds of test/sim.
package loansim
