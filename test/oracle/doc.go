// Package oracle computes what a limiter ought to have answered, in the simplest way
// that can be right: it keeps every admission for ever, adds up whatever lies in
// a window by walking over it, and finds times by trying them.
//
//	Global      what was used in each window (t−W, t] of a record of admissions
//	Region      answers questions as a region's store should, number by number
//
// It shares no code with the limiter that it judges, and imports it nowhere:
// where the limiter keeps counters, offsets and trimmed logs, the oracle keeps
// history and big rationals. It is slow, holds everything in memory, and belongs
// in tests, simulators and chaos runs alone. Nothing here is safe for concurrent use.
package oracle
