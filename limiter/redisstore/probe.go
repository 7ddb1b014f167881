package redisstore

import (
	"context"
	"strings"
	"time"

	"github.com/regiond/regiond/clock"
)

// place is where a server has keys of its own, and its clock. It belongs to the slot, not to the server: a replica that
// takes over has the place of its primary.
type place struct {
	tag   string // in the braces of such keys
	clock *clock.Clock
}

// regionKey is the hash of the region's state. On each other primary of a cluster there is one with the primary's tag.
const regionKey = "rl:region"

// checkEvery is how often the user's rights are looked at while a server decides: they change while it runs, and a replica
// that takes over has rights of its own. While it does not decide, each probe does.
const checkEvery = time.Minute

// write writes, so a Redis that is read-only or out of memory, or that refuses its user a command of the scripts, fails,
// though it answers PING.
func (n *node) write(ctx context.Context) error {
	p := n.place.Load()
	if p == nil {
		return nil
	}
	what, check := "", n.breaker.open() || time.Since(n.checked) >= checkEvery
	if check {
		what = "rights"
	}
	_, err := once(ctx, n.client, "EVAL", luaOf("probe"), 1, "rl:{"+p.tag+"}:rights", what)
	switch {
	case n.cluster != nil && elsewhere(err): // its slot is on its way, which says nothing of the server
		return nil
	case err != nil:
		if lacks := err.Error(); check && strings.HasPrefix(lacks, "NOPERM the user needs") && lacks != n.lacks {
			n.lacks = lacks
			n.log.Warn("the redis user lacks rights, fail modes decide until it has them", "error", err)
		}
		return err
	case check:
		n.checked, n.lacks = time.Now(), ""
	}
	return nil
}
