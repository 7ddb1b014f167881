// Package queue holds the checks that wait for one Redis server, and shares calls between them. It knows no Redis: a
// server is what Send has decide, and Ping asks for a sign of life.
//
// There is no timer: while a call is under way the next checks wait, so an idle service
// sends at once and a busy one in batches.
//
//	Submit ─▶ admit ─▶ waiting jobs ─ take ─▶ batch ─ send ─▶ server
//	   ▲        │ no room: shed        │ too late: shed        │
//	   └────────┴──────────────────────┴─────── done ◀─────────┘
//
// A call carries about callTime of Redis's work, taken from the waiting jobs in turn. A
// larger job is split over calls, one after the other, so its checks are decided in order.
// What cannot be sent in time is shed: turned away, and not charged. What was sent is waited
// for until the server answers or is found dead (watchdog.go), or the caller's own deadline.
//
//	queue.go     Queue: who waits, and what the next call carries
//	price.go     what checks cost the server
//	watchdog.go  slow or dead
//	trace.go     spans of calls
package queue
