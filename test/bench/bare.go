//go:build linux

package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

// bareEnv makes this program a bare server; it holds a bareServer in JSON.
const bareEnv = "REGIOND_BENCH_BARE"

// bareServer is a net/http server that gives regiond's answers without deciding
// anything: the base that the cost of a check is compared with.
type bareServer struct {
	Addr    string
	Redis   string
	Answers map[string]bareAnswer // by path
}

// bareAnswer is an answer that regiond gave once.
type bareAnswer struct {
	Status int
	Header http.Header
	Body   string
	Skip   bool          // the request's body is read and not decoded
	Naive  time.Duration // the window of a naive script that is run in Redis first; 0 for none
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

// serveBare runs until standard input ends, and so at the latest when its parent does.
func serveBare(config string) error {
	var b bareServer
	if err := json.Unmarshal([]byte(config), &b); err != nil {
		return err
	}
	mux := http.NewServeMux()
	mux.HandleFunc("/readyz", func(http.ResponseWriter, *http.Request) {})
	mux.HandleFunc("/metrics", func(w http.ResponseWriter, _ *http.Request) {
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		fmt.Fprintln(w, "go_memstats_mallocs_total", m.Mallocs)
	})
	db := redis.NewClient(&redis.Options{Addr: b.Redis, PoolSize: conns})
	defer db.Close()
	for path, a := range b.Answers {
		mux.Handle(path, a.handler(db))
	}
	s := &http.Server{Handler: mux, ReadHeaderTimeout: time.Minute}
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		_ = s.Close()
	}()
	l, err := net.Listen("tcp", b.Addr) //nolint:noctx // the standard input ends it
	if err != nil {
		return err
	}
	_ = s.Serve(l)
	return nil
}

// bareCheck is what the bare handler decodes of a check.
type bareCheck struct {
	Tenant string `json:"tenant"`
	Policy string `json:"policy"`
}

func (a *bareAnswer) handler(db *redis.Client) http.HandlerFunc {
	body, naive := []byte(a.Body), redis.NewScript(naiveScript)
	var calls atomic.Uint64
	return func(w http.ResponseWriter, r *http.Request) {
		var request bareCheck
		in, err := io.ReadAll(r.Body)
		if err == nil && !a.Skip {
			err = json.Unmarshal(in, &request)
		}
		if err == nil && a.Naive > 0 {
			err = naive.Run(r.Context(), db, []string{"naive:{" + request.Tenant + "}:" + request.Policy},
				100_000, a.Naive.Microseconds(), 2*a.Naive.Milliseconds(), calls.Add(1)).Err()
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
