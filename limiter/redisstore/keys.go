package redisstore

import (
	"cmp"
	"context"
	"slices"
	"strconv"
	"strings"

	"github.com/regiond/regiond/limiter/store"
)

// keysPage is how many keys one SCAN of Keys looks at: less than a tenth of a millisecond of Redis's time.
const keysPage = 200

// Keys implements store.Lister. A cursor is the place of a server among those sorted by address, and the cursor of its SCAN.
func (s *Store) Keys(ctx context.Context, cursor string) (keys []string, next string, err error) {
	nodes := slices.Clone(s.nodeSet.current())
	if len(nodes) == 0 {
		return nil, "", errNoMap
	}
	slices.SortFunc(nodes, func(a, b *node) int { return cmp.Compare(a.client.Options().Addr, b.client.Options().Addr) })
	place, at := 0, uint64(0)
	if cursor != "" {
		number, rest, _ := strings.Cut(cursor, ".")
		place, err = strconv.Atoi(number)
		if err == nil {
			at, err = strconv.ParseUint(rest, 10, 64)
		}
		if err != nil || place < 0 || place >= len(nodes) {
			return nil, "", store.ErrCursor
		}
	}
	keys, at, err = nodes[place].client.Scan(ctx, at, "rl:{*", keysPage).Result()
	switch {
	case err != nil:
		return nil, "", classify(err)
	case at == 0 && place+1 == len(nodes):
		return keys, "", nil
	case at == 0:
		place++
	}
	return keys, strconv.Itoa(place) + "." + strconv.FormatUint(at, 10), nil
}
