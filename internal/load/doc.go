// Package load sends checks to running regionds at a fixed rate and measures what came
// back and how long it took. `regiond bench` is its flags and its exit code.
//
//	      due times          slots           targets, in turn
//	pacer ─────────► draw ─────────► goroutine ─────────► POST /v1/check
//	                           └ none free: counted, not sent
//
// The loop is open. Requests are due at times that are fixed beforehand, and each is
// sent when it is due, whatever became of those before it. Its latency counts from
// when it was due: a server that stalls for a second delays all that were due in that
// second, and all of them show it. A closed loop would have sent one, and waited. The
// time from sending to the answer is kept beside it (service), and so is how late the
// requests were sent (late): the result shows whether the tool kept up.
//
// It sends nothing beyond what was asked: no retry, no redirect, no proxy, never more
// requests than rate times duration, never more at once than the cap. It does not
// judge; who wants a pass or a fail reads the result.
package load
