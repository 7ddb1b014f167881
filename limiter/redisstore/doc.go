// Package redisstore is the Store on a region's Redis: one server, the primary that sentinels
// name, or a cluster. All limits of a call are decided by one Lua script (lua/), on the time
// of Redis.
//
// A charge is sent once: only replies that mean "not executed" are followed by another
// attempt. Checks share script calls, and those that Redis will not come to in time are shed;
// a busy Redis is not taken for one that is away. What then becomes of a check is up to limiter.
//
//	store.go     Options, Store: which servers there are, probes, resets
//	cluster.go   the primaries of a cluster, and slots on their way
//	node.go      one server: a call and what became of it
//	queue/       the checks that wait for a server, and the calls that they share
//	breaker.go   a server that failed a moment ago
//	probe.go     whether a server writes, and all that scripts call
//	script.go    the script's arguments and its reply
//	record.go    admissions with an Idempotency-Key
//	counters.go  usage counters, read back by a process that starts
//	metrics.go   instruments
//	lua/         decide.lua is where to begin
package redisstore
