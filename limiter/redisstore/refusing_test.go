package redisstore

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/regiond/regiond/limiter/limitertest"
	"github.com/regiond/regiond/limiter/store"
	"github.com/regiond/regiond/test/redisserver"
)

// TestRefusingServer: a server that refuses to write is away until it writes again, also for the probe that looks at the
// user's rights: no call finds out.
func TestRefusingServer(t *testing.T) {
	srv := redisserver.Start(t, redisserver.Options{})
	config := func(t *testing.T, pairs ...string) {
		t.Helper()
		for pair := range slices.Chunk(pairs, 2) {
			ok(t, srv.Client().ConfigSet(t.Context(), pair[0], pair[1]).Err())
		}
	}
	var log strings.Builder
	s := newStore(t, asUser(Options{Addrs: []string{srv.Addr()}, DeadAfter: 10 * time.Second, Logger: slog.New(slog.NewTextHandler(&log, nil))}))
	admit(t, srv, documentedUser(t))
	s.probe(t.Context())
	killer := srv.Client().Conn() // a busy server does not let go-redis make one
	defer killer.Close()
	for _, row := range []struct {
		code         string
		begin, ended func(t *testing.T)
	}{
		{
			"OOM",
			func(t *testing.T) { config(t, "maxmemory", "1") },
			func(t *testing.T) { config(t, "maxmemory", "0") },
		},
		{
			"NOREPLICAS",
			func(t *testing.T) { config(t, "min-replicas-to-write", "1") },
			func(t *testing.T) { config(t, "min-replicas-to-write", "0") },
		},
		{
			"READONLY",
			func(t *testing.T) { replicaOf(t, srv, "127.0.0.1", "1") },
			func(t *testing.T) { replicaOf(t, srv, "no", "one") },
		},
		{
			"MISCONF",
			func(t *testing.T) {
				at := srv.Client().ConfigGet(t.Context(), "d*").Val()
				ok(t, os.MkdirAll(filepath.Join(at["dir"], at["dbfilename"], "taken"), 0o700))
				config(t, "save", "3600 1")
				srv.Client().BgSave(t.Context())
				limitertest.Eventually(t, 10*time.Second, "a save that fails", func() bool {
					return strings.Contains(srv.Client().Info(context.Background(), "persistence").Val(), "rdb_last_bgsave_status:err")
				})
			},
			func(t *testing.T) { config(t, "save", "") },
		},
		{
			"BUSY",
			func(t *testing.T) {
				killer.Ping(t.Context())
				config(t, "busy-reply-threshold", "1")
				go srv.Client().Eval(context.Background(), "while true do end", nil)
				limitertest.Eventually(t, 10*time.Second, "a busy server", func() bool {
					err := srv.Client().Get(context.Background(), "x").Err()
					return err != nil && strings.HasPrefix(err.Error(), "BUSY")
				})
			},
			func(t *testing.T) {
				limitertest.Eventually(t, 10*time.Second, "a server that answers", func() bool {
					killer.ScriptKill(context.Background())
					return killer.Ping(context.Background()).Err() == nil
				})
			},
		},
	} {
		t.Run(row.code, func(t *testing.T) {
			n := s.nodeSet.current()[0]
			log.Reset()
			row.begin(t)
			for i := range 4 { // while a server is away each probe looks at the rights
				n.breaker.hold = 0
				if s.probe(t.Context()); s.Available() {
					t.Errorf("probe %d takes the server for one that decides", i)
				}
			}
			if got := log.String(); strings.Count(got, "level=WARN") != 1 || !strings.Contains(got, row.code+" ") || strings.Contains(got, "rights") {
				t.Errorf("the log does not name %s, and nothing else:\n%s", row.code, got)
			}
			row.ended(t)
			n.breaker.hold = 0
			if s.probe(t.Context()); !s.Available() {
				t.Error("not available when it is over")
			}
			if _, err := limitertest.DecideOne(s, hour().Call("acme", store.OpCheck, 1, nil)); err != nil {
				t.Error(err)
			}
		})
	}
	noRefusals(t, srv)
}

func replicaOf(t *testing.T, srv *redisserver.Server, host, port string) {
	t.Helper()
	ok(t, srv.Client().Do(t.Context(), "REPLICAOF", host, port).Err())
}

// TestNarrowKeys: a user may be given less than rl:*, the keys of DESIGN.md's table: what regiond tries its rights on is one
// of them.
func TestNarrowKeys(t *testing.T) {
	srv := redisserver.Start(t, redisserver.Options{})
	rules := documentedUser(t)
	i := slices.Index(rules, "~rl:*")
	admit(t, srv, slices.Replace(rules, i, i+1, "~rl:{*", "~rl:region", "~rl:resets", "~rl:overrides:*"))
	s, log := storeOfUser(t, srv.Addr())
	if s.probe(t.Context()); !s.Available() {
		t.Fatalf("not available:\n%s", log)
	}
	everything(t, s)
	noRefusals(t, srv)
}
