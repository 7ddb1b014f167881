// Package limitertest holds every limiter.Store to one meaning. Run goes through
// ledgers written by hand, RunPrograms through random programs whose every answer
// must equal the oracle's to the last microsecond. What passes both may stand in
// for the region's Redis: in a demo, in a simulator, or while Redis is away.
//
// A store under test must let the suite move its clock by hand. Its keys must not
// expire by any other clock: no answer may depend on expiry, and the suite goes
// days forward and back to see that. For tests alone.
package limitertest
