// Package sync shares usage between regions: it publishes what this region has
// admitted and merges what the others publish, so that a limiter has an estimate of
// their usage at any moment. Nothing here is on the path of a request
// but a map lookup.
//
// Importers call it meshsync; the standard library has a sync of its own. DESIGN.md argues the decisions.
//
// The way of one delta, from a check in one region to an estimate in another:
//
//	limiter/bounds.go       the store's answer to a check: the partition's counter now
//	region/view/ceilings.go Record
//	sync/ledger/record.go   our own counter grows
//	sync/ledger/outbox.go   it waits for Take, at most a tick, or is urgent
//	sync/publish.go         numbered, sealed and signed; what the bus refuses goes first later
//	sync/wire/codec.go      protobuf
//	sync/natsbus/bus.go     queue ─▶ NATS ─▶ inbox of a peer (inbox.go)
//	sync/receive.go         verified, decoded, its author checked (peertable.go)
//	sync/ledger/fold.go     merged by maximum
//	sync/ledger/estimate.go what a decision of the peer counts
//
// The other files, each a kind of message or what keeps deltas whole:
//
//	mesh.go       the goroutine that owns all of it, and its steps
//	heartbeat.go  who is there, and who receives whom
//	request.go    what is missing of a process, and requesting it
//	snapshot.go   answering such requests
//	queue.go      loans, resets and rankings, which other packages send by the mesh
//	trace.go      the spans of messages
package sync
