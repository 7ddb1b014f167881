package memstore

import (
	"context"
	"strconv"

	"github.com/regiond/regiond/internal/base/expiring"
	"github.com/regiond/regiond/limiter/store"
)

// Keys implements store.Lister: each call returns the keys of one shard.
func (m *Store) Keys(_ context.Context, cursor string) (keys []string, next string, err error) {
	at := 0
	if cursor != "" {
		if at, err = strconv.Atoi(cursor); err != nil || at < 0 || at >= expiring.Shards {
			return nil, "", store.ErrCursor
		}
	}
	s := m.entries.Shard(uint64(at))
	s.Lock()
	defer s.Unlock()
	for key := range s.All() {
		keys = append(keys, key)
	}
	if at+1 < expiring.Shards {
		next = strconv.Itoa(at + 1)
	}
	return keys, next, nil
}
