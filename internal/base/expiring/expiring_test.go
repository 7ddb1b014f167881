package expiring

import (
	"fmt"
	"hash/maphash"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"pgregory.net/rapid"
)

// plainMap is the reference model of an expiring map: nothing is swept, it is
// asked about what has not ended.
type plainMap map[int]Entry[int]

func (p plainMap) live(now int64) (keys []int) {
	for k, e := range p {
		if e.Ends > now {
			keys = append(keys, k)
		}
	}
	return keys
}

// hashed puts few keys into few shards, so that they meet.
func hashed(key int) uint64 { return uint64(key % 3) }

// Whatever is swept and when, the map answers as one that keeps everything and compares
// ends; it never holds more than its bound, and refuses a newcomer only when as many are live.
func TestMatchesReference(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		most := rapid.IntRange(0, 40).Draw(t, "most")
		m, model, now := New[int, int](most), plainMap{}, int64(0)
		for step := range rapid.IntRange(1, 400).Draw(t, "steps") {
			key := rapid.IntRange(0, 60).Draw(t, "key")
			s := m.Shard(hashed(key))
			s.Lock()
			got, want := s.Get(key, now), model[key]
			held := got != nil
			if held != (want.Ends > now) || held && *got != want {
				t.Fatalf("step %d: %d is %+v, want %+v", step, key, got, want)
			}
			op := rapid.IntRange(0, 19).Draw(t, "op")
			switch {
			case op == 0 && held:
				s.Drop(key)
				delete(model, key)
			case op == 1 && held:
				victim := s.Evict()
				if !victim {
					t.Fatal("nothing to evict in a shard with an entry")
				}
				s.Give(1)
				for k := range model { // whichever it was
					if _, kept := s.entries[k]; hashed(k) == hashed(key) && !kept {
						delete(model, k)
					}
				}
			case op < 5: // a newcomer that then does not come
				if !held && s.Take(1, now) {
					s.Give(1)
				}
			default:
				lasts := rapid.Int64Range(1, 50).Draw(t, "lasts")
				live := len(model.live(now))
				took := held || s.Take(1, now)
				if took != (held || live < most) {
					t.Fatalf("step %d: with %d live of %d, a newcomer is admitted: %v", step, live, most, took)
				}
				if took && !held {
					got = &Entry[int]{}
					s.Put(key, got)
				}
				if took {
					got.Value, got.Ends = step, now+lasts
					model[key] = *got
				}
			}
			s.Unlock()
			if size, held := int(m.size.Load()), m.held(); size != held || size > most {
				t.Fatalf("step %d: %d are held and %d counted, want the same and at most %d", step, held, size, most)
			}
			now += rapid.SampledFrom([]int64{0, 0, 1, 5, 60}).Draw(t, "pass")
			if rapid.IntRange(0, 9).Draw(t, "count") == 0 {
				if n, want := m.Live(now), model.live(now); n != len(want) {
					t.Fatalf("step %d: %d are live, want %v", step, n, want)
				}
			}
		}
	})
}

func (m *Map[K, V]) held() (n int) {
	for i := range m.shards {
		n += len(m.shards[i].entries)
	}
	return n
}

// After a flood that was swept as it came, and then ended, no map is as large as it was.
func TestShrinks(t *testing.T) {
	m := New[int, int](1 << 20)
	at := func(key int, now int64) {
		s := m.Shard(uint64(key))
		s.Lock()
		defer s.Unlock()
		if s.Get(key, now) == nil && s.Take(1, now) {
			s.Put(key, &Entry[int]{key, now + 1000})
		}
	}
	const flood = 400_000
	for i := range flood { // 100,000 are live at any time
		at(i, int64(i)/100)
	}
	if n := m.held(); n > 250_000 {
		t.Errorf("a flood of which 100000 are live leaves %d entries", n)
	}
	for i := range 4 * flood { // some that come again and again
		at(i%640, flood)
	}
	widest := 0
	for i := range m.shards {
		widest = max(widest, m.shards[i].widest)
	}
	if n := m.held(); n > 1000 || widest > shrinkAbove {
		t.Errorf("%d entries are held, and the map of a shard has had %d since it was made", n, widest)
	}
}

// The bound holds under concurrency, also for those who need several places at once.
func TestBoundedConcurrently(t *testing.T) {
	const most, callers = 300, 16
	m := New[string, int](most)
	var now, refused atomic.Int64
	var wg sync.WaitGroup
	for w := range callers {
		wg.Go(func() {
			for i := range 5_000 {
				at := now.Add(1)
				s := m.Shard(uint64(w*31 + i))
				names := []string{fmt.Sprint(w, ".", i), fmt.Sprint(w, "+", i)}
				s.Lock()
				if s.Take(len(names), at) {
					for _, name := range names {
						s.Put(name, &Entry[int]{i, at + int64(i%2_000)})
					}
				} else {
					refused.Add(1)
				}
				s.Unlock()
			}
		})
	}
	wg.Wait()
	if held := m.held(); held > most || int64(held) != m.size.Load() || refused.Load() == 0 {
		t.Errorf("%d entries are held of %d, %d counted, %d refused", held, most, m.size.Load(), refused.Load())
	}
}

// The order of keys counts, and how often one occurs.
func TestHash(t *testing.T) {
	seed := maphash.MakeSeed()
	var seen []uint64
	for _, keys := range [][]string{nil, {"a"}, {"b"}, {"a", "b"}, {"b", "a"}, {"a", "a"}, {"a", "a", "a"}, {"b", "b"}, {"ab"}} {
		h := Hash(seed, keys)
		if slices.Contains(seen, h) {
			t.Errorf("%q has the hash of another", keys)
		}
		seen = append(seen, h)
	}
}
