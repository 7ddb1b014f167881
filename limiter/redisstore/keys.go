package redisstore

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/cespare/xxhash/v2"
	"github.com/redis/go-redis/v9"

	"github.com/regiond/regiond/limiter/store"
)

// keysPage is how many keys one SCAN of Keys looks at: about a tenth of a millisecond of Redis's time.
const keysPage = 100

// Keys implements store.Lister. A cursor is the place of a server among those sorted by address, the cursor of its SCAN, and what
// both are of: another server has the same keys in another order.
func (s *Store) Keys(ctx context.Context, cursor string) (keys []string, next string, err error) {
	nodes := slices.Clone(s.nodeSet.current())
	if len(nodes) == 0 {
		return nil, "", errNoMap
	}
	slices.SortFunc(nodes, func(a, b *node) int { return cmp.Compare(a.addr, b.addr) })
	var all xxhash.Digest
	for _, n := range nodes {
		_, _ = all.WriteString(n.addr + " ")
	}
	place, at, of, was := 0, uint64(0), strconv.FormatUint(all.Sum64(), 36), ""
	if cursor != "" {
		if n, _ := fmt.Sscanf(cursor, "%d.%d.%s", &place, &at, &was); n != 3 || place < 0 || place >= len(nodes) || at == 0 && was != of {
			return nil, "", store.ErrCursor
		}
	}
	var info *redis.StringCmd
	var scan *redis.ScanCmd
	if _, err = nodes[place].client.Pipelined(ctx, func(p redis.Pipeliner) error {
		info, scan = p.Info(ctx, "server"), p.Scan(ctx, at, "rl:{*", keysPage)
		return nil
	}); err != nil {
		return nil, "", classify(err)
	}
	_, run, _ := strings.Cut(info.Val(), "\nrun_id:")
	run, _, _ = strings.Cut(run, "\r")
	_, _ = all.WriteString(run)
	here := strconv.FormatUint(all.Sum64(), 36)
	if at != 0 && was != here {
		return nil, "", store.ErrCursor
	}
	switch keys, at = scan.Val(); {
	case at != 0:
		of = here
	case place+1 == len(nodes):
		return keys, "", nil
	default:
		place++
	}
	return keys, fmt.Sprintf("%d.%d.%s", place, at, of), nil
}
