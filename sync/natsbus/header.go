package natsbus

import (
	"github.com/nats-io/nats.go"

	meshsync "github.com/regiond/regiond/sync"
)

// A header on the wire is "NATS/1.0\r\n", lines "name: value\r\n", and "\r\n".
const (
	headerFrame = len("NATS/1.0\r\n\r\n")
	fieldFrame  = len(": \r\n")
)

// headerSize is what a header takes of the bytes that a server lets a message have.
func headerSize(fields []meshsync.Field) int {
	if len(fields) == 0 {
		return 0
	}
	n := headerFrame
	for _, f := range fields {
		n += len(f.Name) + len(f.Value) + fieldFrame
	}
	return n
}

// headerOf keeps the case of names, as nats.Header does not do by itself: its Set
// writes them as they are, but http's habits would not.
func headerOf(fields []meshsync.Field) nats.Header {
	h := make(nats.Header, len(fields))
	for _, f := range fields {
		h[f.Name] = append(h[f.Name], f.Value)
	}
	return h
}

// fieldsOf is what arrived; nil for nothing and for what is none of ours. It is
// made by others, so its size is theirs to choose.
func fieldsOf(h nats.Header) []meshsync.Field {
	if len(h) == 0 || len(h) > meshsync.MaxFields {
		return nil
	}
	fields := make([]meshsync.Field, 0, len(h))
	for name, values := range h {
		for _, value := range values {
			if len(fields) == meshsync.MaxFields || len(name)+len(value) > meshsync.MaxFieldBytes {
				return nil
			}
			fields = append(fields, meshsync.Field{Name: name, Value: value})
		}
	}
	return fields
}
