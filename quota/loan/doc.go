// Package loan lends the shares of a global limit between regions for a limited time, so that in every window W all
// regions together admit at most B units, whatever is lost, repeated, late or cut.
//
// Book is what one region keeps of one partition and limit, with the transitions that are safe; it is the reference
// model of the script that runs beside the log in the region's Redis (limiter/redisstore/lua/loans.lua). Plan is the policy: who asks for how much, and
// what is lent, returned and extended. Any policy is safe. Nothing here does I/O or reads a clock: time is an
// argument, in microseconds of the region's own clock, and clocks of regions are never compared.
package loan
