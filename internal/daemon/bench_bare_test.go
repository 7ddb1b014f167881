//go:build unix

package daemon

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

// benchBare is a server with nothing of ours in it: what a check costs is told
// beside it. It answers with what it was given.
type benchBare struct {
	Answers map[string]benchAnswer // by path
	Redis   string                 // of paths that ask the naive script first
}

// benchAnswer is an answer that regiond gave once.
type benchAnswer struct {
	Status int
	Header http.Header
	Body   string
	Drain  bool // the body is read and not looked at: the least that a handler can do
	Naive  bool // the naive script is asked
}

// naiveScript is the sliding log as it is most often written: a sorted set that is
// pruned, counted and added to.
const naiveScript = `
local t = redis.call('TIME')
local now = t[1] * 1000000 + t[2]
redis.call('ZREMRANGEBYSCORE', KEYS[1], 0, now - ARGV[2])
local n = redis.call('ZCARD', KEYS[1])
if n < tonumber(ARGV[1]) then
  redis.call('ZADD', KEYS[1], now, string.format('%.0f-%s', now / 1000, ARGV[4]))
  redis.call('PEXPIRE', KEYS[1], ARGV[3])
  return {1, ARGV[1] - n - 1, 0}
end
local oldest = redis.call('ZRANGE', KEYS[1], 0, 0, 'WITHSCORES')
return {0, 0, oldest[2] + ARGV[2] - now}`

func (bb *benchBare) serve(ctx context.Context) error {
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	mux := http.NewServeMux()
	mux.HandleFunc("/mallocs", func(w http.ResponseWriter, _ *http.Request) {
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		fmt.Fprint(w, m.Mallocs)
	})
	client := redis.NewClient(&redis.Options{Addr: bb.Redis, PoolSize: 64})
	defer client.Close()
	for path, a := range bb.Answers {
		mux.Handle(path, a.handler(client))
	}
	// As ours it has no time limit that an answer could meet.
	s := &http.Server{Handler: mux, ReadHeaderTimeout: time.Minute}
	context.AfterFunc(ctx, func() { _ = s.Close() })
	fmt.Println(l.Addr())
	_ = s.Serve(l)
	return nil
}

func (a *benchAnswer) handler(client *redis.Client) http.HandlerFunc {
	body, naive := []byte(a.Body), redis.NewScript(naiveScript)
	var asked atomic.Uint64
	return func(w http.ResponseWriter, r *http.Request) {
		var check struct {
			Tenant string `json:"tenant"`
			Policy string `json:"policy"`
		}
		in, err := io.ReadAll(r.Body)
		if err == nil && !a.Drain {
			err = json.Unmarshal(in, &check)
		}
		if err == nil && a.Naive {
			err = naive.EvalSha(r.Context(), client, []string{"naive:{" + check.Tenant + "}:" + check.Policy},
				100_000, time.Minute.Microseconds(), 2*time.Minute.Milliseconds(), asked.Add(1)).Err()
			if redis.HasErrorPrefix(err, "NOSCRIPT") {
				err = naive.Load(r.Context(), client).Err()
			}
		}
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		h := w.Header()
		for name, values := range a.Header {
			h[name] = values
		}
		w.WriteHeader(a.Status)
		_, _ = w.Write(body)
	}
}
