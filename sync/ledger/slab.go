package ledger

// slabChunk is how many values lie together: large enough that a chunk's header
// costs nothing, small enough that an empty ledger stays small.
const slabChunk = 256

// slab hands out room for values of one type, named by numbers from 1. Values
// never move, what is released is used again, and nothing is given back: the next
// hour's partitions are as many as this one's. T has no pointers, so the garbage
// collector looks at one pointer for each chunk.
type slab[T any] struct {
	chunks []*[slabChunk]T
	free   []uint32
	high   uint32 // the largest number in use so far
}

// at is the value with a number that alloc gave.
func (s *slab[T]) at(i uint32) *T { return &s.chunks[i/slabChunk][i%slabChunk] }

// alloc gives room for a value, zeroed, and its number.
func (s *slab[T]) alloc() (uint32, *T) {
	if n := len(s.free); n > 0 {
		i := s.free[n-1]
		s.free = s.free[:n-1]
		return i, s.at(i)
	}
	s.high++
	if int(s.high/slabChunk) == len(s.chunks) {
		s.chunks = append(s.chunks, new([slabChunk]T))
	}
	return s.high, s.at(s.high)
}

func (s *slab[T]) release(i uint32) {
	var zero T
	*s.at(i) = zero
	s.free = append(s.free, i)
}
