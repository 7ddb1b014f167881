// Package natsbus is the sync.Bus over core NATS, and the NATS server that a
// small deployment carries inside itself.
//
//	Publish ─▶ queue ─▶ writer ─▶ nats.go ─▶ NATS ─ ─ gateways ─ ─▶ peers
//	(never waits)      (may wait)                                     │
//	Messages ◀─ inbox (bounded) ◀──────────── nats.go ◀───────────────┘
//
// What it promises:
//
//   - Publish returns at once whatever the socket does: NATS down, frozen, or
//     taking bytes and forgetting them. nil means only that the bus took it.
//   - What could not be sent while there was a connection is dropped, never kept
//     for later: a message is state, and the next one has newer state.
//   - The messages of one publisher arrive in its order, over all subjects. Those
//     that the reader is too slow for are dropped and counted, and Drops says so.
//   - A connection is looked for for ever. It counts as there once its
//     subscriptions are in place, and then Gaps says that something was missed.
//
// What it does not: acknowledge, repeat, store, or know what a message means. A gap
// between two regions' servers happens beyond our connection and is not seen here;
// sequence numbers in the messages show it.
//
// A Bus is used by sync; cmd/regiond makes it, with an Embedded server or with
// the addresses of a NATS that others run.
package natsbus
