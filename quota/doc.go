// Package quota defines the types that all packages share and the arithmetic on them:
// tenants and their limits, requests, and decisions.
//
//	tenant      a customer; owns one Redis hash slot
//	policy      a named set of limits plus fail modes and enforcement
//	limit       L units per window W, an algorithm, a scope, dimensions (By) and a condition (When)
//	partition   what is counted together: tenant + policy + values of By + When
//	cost        units of a request
//	ceiling     how many units this region may hold in its window; at most L
//	decision    allowed or not, with remaining, retry-after, reset-after and the basis: why
//
// The files, in the order of a decision:
//
//	request.go     Request, its ids and dimensions
//	policy.go, limit.go   what it is held to; partition text
//	units.go, clock.go, counter.go        the counting that Redis and memory share
//	decision.go    Decision, and the ceilings of global limits
//	explain.go     why, in terms; package sentences says it in English
//	topology.go, text.go, admin.go   the rest of the configuration; names; what operators read
//
// Everything here is a value or a pure function: standard library only, no
// goroutine, no clock, no I/O. Every other package imports quota, so what two of them
// must agree on is defined here.
//
// Times are integers of microseconds (suffix US) or time.Duration; units are
// int64 between 0 and MaxUnits. Nothing is a float: a rate limit is a promise
// about counts, and 1,795,198,405,260,197 µs does not survive one.
package quota
