package memstore

import "time"

// NewTimedMemory is a memory store on a clock that may go days forward and back.
func NewTimedMemory(now func() int64, passed func() time.Duration) *Store {
	return New(Options{Now: now, passed: passed, keep: true})
}
