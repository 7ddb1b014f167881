// Package sim runs regions of regiond in virtual time: the real limiter on its memory
// store, the real ledger, mesh, wire format and view, and for limits with a bound the real
// tender and durable state, joined as the daemon joins them, and between them a bus, stores and gossip that fail. One
// goroutine, one seed, one trace. A FaultPlan is a World of estimated limits with a random plan
// of faults, a StrictPlan one of limits with a bound, and a Campaign runs many.
//
// # Time
//
// All timings are the product's own, and so are the steps: the world calls those of the
// mesh, the view manager, the tender and the state that their Run methods call, one after the other. Between
// two events time costs nothing. A look that cannot show anything new is left out.
//
// # Limits with a bound
//
// B-1: in every window of true time, shorter than W by the 500 ppm that a clock may be
// fast and the 100 ms that it may step without being noticed, all regions together admit at most B, whatever happens. Nothing excuses a
// window. While units of a limit change, B is the larger until every region has
// confirmed the new ones for as long as a record of a loan stands. An operator
// vouches for a region that is taken out when its processes have ended. A world is
// played while nine tenths of a bound are in use: only then a mistake shows.
//
// Reservations: what is settled in such a window and what is held at its end are at most B. A hold counts from its reserve until
// its time is over by the fastest clock, or its region's store loses data, is reset or has its clock stepped forward. What is
// settled counts unless the answer says that it was not held (released: false), and up to what was held.
//
// The loans are the product's: region/loans tends them by messages of the mesh, memstore
// keeps them and applies the bound, region/state has the epoch and the topologies in
// durable.go, which is region.lua in Go (TestDurable), and region/view gives the shares.
// In half of the worlds processes also lend and return at random, in half all of a region
// tend. `go run ./test/sim/cmd/rules` takes out one rule at a time.
//
// Not played, since nothing in the product can notice it: a store that is emptied while no process of the region watches, and a
// clock that steps forward while those that run do not, or together with the hosts' clocks. Those differ by 10 ms at most. The
// last process that watches takes a turn before it ends or freezes. A clock steps
// by 100 ms or less once a minute at most: the judge allows for one such step. A server that takes over is known by its
// run_id, which the first call on it finds; calls and turns take 3 ms, and now and then up to 200 ms. Redis's own scripts
// are not run: limitertest holds memstore to them. The operator follows
// docs/operate.md: a region ends before the others drop it, and a new one starts when
// what was used and lent under larger shares is over.
//
// # What is checked of estimated limits, and when
//
// At every check: LOC-F (what was lost is reckoned with, and a store that does not hold what a
// ceiling rests on does not decide). At every admission by a
// store: LOC-1 (counters of a store), LOC-3 (the window), G-1, G-3, BUS-4. At every
// denial: G-4, G-5. At every look of a process: G-3 (groups), LV-3. At every 64th look
// and 16th admission of a world, since they walk over a whole ledger: BUS-1, BUS-2.
// Ten seconds after each episode, if nothing is wrong by then: BUS-3. When it is tried:
// BUS-6, BUS-8, BUS-9. BUS-7 has a world of its own, TestRoomRunsOut.
//
// # How the invariants are read here
//
//   - G-1: a ceiling is at most L less what the others may use or are known to have used;
//     a process counts all that it received; and a process that counts on a region has
//     received its units within five seconds. What a process has received counts for a
//     window, in whichever form its ledger keeps it: the judge has the log of it. While all
//     count on all, the sum over all regions is L at most, but for what the process has not
//     received yet and what is beyond the cap.
//   - G-3: there is no strict mode. A region that counts on nobody for a window holds no
//     more than its part, and two regions never count on overlapping groups for longer
//     than it takes to notice. Policies other than share promise less, see the table
//     above view.Ceiling.
//   - G-4: from two windows and five seconds after a region began to count on nobody, it
//     is not denied what fits into its part, less what others are known to have used
//     beyond theirs. It takes two windows for what it counted while it was not alone to
//     be over.
//   - G-5: while all count on all and have the same topology; and under share no ceiling is
//     below what is worked out from the estimates.
//   - G-6: there is no taper. What is admitted in share stays within the part, which G-3
//     holds it to.
//   - BUS-1 and BUS-5: what is held of a region, bucket and generation is the largest number
//     that was received, in any order and however often.
//   - BUS-2: and never more than the region has admitted.
//   - BUS-3: ten seconds after the last fault and the last admission any two processes
//     hold the same of a third region. What is over within five seconds is left out: each
//     process sees a bucket end by its own clock.
//   - BUS-4: what is believed of a region is no more than what it said counts, three
//     seconds later at most: a bucket that is first received late ends late. A tenth of a
//     counter may count until its bucket is over.
//   - LV-3: a region that is counted on is received from on the bus; modes change at most as often as
//     doubling waits allow; with nothing wrong for two minutes the mode is global.
//   - LOC-F: when a store has lost all that it counted, or was away, the process that
//     admitted it reckons with it. For what is counted elsewhere, a region whose store
//     lost something, was away or had its clock moved is excused for as long as a counter
//     may count, two windows and a bucket, and five seconds in which to receive of it; the
//     sum over all regions, to which both sides contribute, for twice that.
package sim
