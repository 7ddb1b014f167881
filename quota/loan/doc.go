// Package loan lends the shares of a global limit between regions for a limited time, so that in every window W all
// regions together admit at most B units, whatever is lost, repeated, late or cut.
//
//	loan.go    Book: what one region keeps of one partition and limit, with the transitions that are safe. It is the
//	           reference model of the script beside the log in the region's Redis (limiter/redisstore/lua/loans.lua)
//	plan.go    Planner: the policy, which asks, lends, extends and returns. Any policy is safe
//	want.go    what it asks of others, and how much a region needs
//	turn.go    whose turn it is where a share admits one cost or none
//
// Nothing here does I/O or reads a clock: time is an argument, in microseconds of the region's own clock, and clocks of
// regions are never compared.
package loan
