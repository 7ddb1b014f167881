package memstore

// NewTimedMemory is a memory store on a clock that may go days forward and back.
func NewTimedMemory(now func() int64) *Store {
	return New(Options{Now: now, keep: true})
}
