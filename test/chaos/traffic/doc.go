// Package traffic asks regiond what gateways ask, at a rate that does not depend on the
// answers, and keeps every request with its answer.
//
//	profile ──▶ what, when ──▶ Client (one per region) ──▶ regiond
//	                              └──────▶ History ◀── what came back, and when
//
// A request is sent when it is due whether or not the last was answered (open loop), and
// its time is counted from when it was due: a stall is seen by all that it held up.
// Beside regiond a bare handler is asked in the same way, which shows what the machine
// itself did to answers in the same second.
package traffic
