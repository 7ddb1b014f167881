package redisstore

import (
	"context"
	_ "embed"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

// lifeKey begins the keys of lives: one on a server, and one on each primary of a cluster,
// with a number in braces that puts it there.
const lifeKey = "rl:life"

//go:embed lua/life.lua
var lifeScript string

// Life is a time through which a server has kept its data. Another one begins when they
// were lost or went back: after a flush, a start without them, a failover to a replica that
// was behind. All processes of a region see the same.
type Life struct {
	Key   string
	ID    int64     // random
	Start time.Time // of the server's clock
	// Writes counts the probes of all processes. Within a life it only grows.
	Writes int64
}

// life is what a process has seen of a server's life. It belongs to its key, so that a
// replica that takes over is asked for what its primary had.
type life struct {
	key  string
	seen atomic.Pointer[Life] // nil before the first probe
}

// checkEvery is how often the user's rights are looked at while a server decides: they change while it runs, and a replica
// that takes over has rights of its own. While it does not decide, each probe does.
const checkEvery = time.Minute

// live takes part in the life of the server's data. It writes, so a Redis that is
// read-only or out of memory, or that refuses its user a command of the scripts, fails,
// though it answers PING. The writes between two probes are how precise a loss is noticed.
func (n *node) live(ctx context.Context) error {
	l := n.life.Load()
	if l == nil {
		return nil
	}
	was, id, writes := l.seen.Load(), "", int64(0)
	if was != nil {
		id, writes = fmt.Sprint(was.ID), was.Writes
	}
	keys, check := []any{1, l.key}, n.breaker.open() || time.Since(n.checked) >= checkEvery
	if check {
		keys = []any{2, l.key, "rl:{" + hashTag(l.key) + "}:rights"} // named as keys of checks are; in a cluster the same slot
	}
	reply, err := once(ctx, n.client, append(append([]any{"EVAL", lifeScript}, keys...), rand.Int64(), id, writes)...)
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
	now, startUS := &Life{Key: l.key}, int64(0)
	text, _ := reply.(string)
	if _, err := fmt.Sscanf(strings.ReplaceAll(text, ":", " "), "%d %d %d", &now.ID, &startUS, &now.Writes); err != nil {
		return fmt.Errorf("unexpected reply of the life script: %.80q", text)
	}
	now.Start = time.UnixMicro(startUS).UTC()
	defer l.seen.Store(now)
	if was != nil && was.ID != now.ID {
		n.metrics.losses.Add(1)
		n.lost()
		n.log.Warn("redis has lost writes that it had confirmed; limits may admit that much again within a window", "key", l.key, "since", now.Start)
	}
	return nil
}

// Lives are those of the store's servers, as last probed.
func (s *Store) Lives() []Life {
	var all []Life
	for _, n := range s.nodeSet.current() {
		if l := n.life.Load(); l != nil && l.seen.Load() != nil {
			all = append(all, *l.seen.Load())
		}
	}
	return all
}

// Eval runs a script on the server that holds key, at most once. It works before Run, and
// may wait until ctx ends. It is no EVALSHA, whose statistics price decisions.
func (s *Store) Eval(ctx context.Context, source, key string, args ...any) (any, error) {
	var client *redis.Client
	var err error
	switch set := s.nodeSet.(type) {
	case single:
		client = set.client
	case *cluster:
		if client, err = set.client.MasterForKey(ctx, key); err != nil {
			return nil, err
		}
	}
	return once(ctx, client, append([]any{"EVAL", source, 1, key}, args...)...)
}
