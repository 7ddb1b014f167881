package daemon

import (
	"net/http"
	"testing"

	"github.com/regiond/regiond/test/redisserver"
)

// TestResetOnALargeRedis: all keys of all tenants are looked through, which takes far
// longer than an answer may, and what others use stays.
func TestResetOnALargeRedis(t *testing.T) {
	const tenants = 100_000
	srv := redisserver.Start(t, redisserver.Options{})
	r := srv.Client()
	if err := r.Eval(t.Context(), `for i = 1, ARGV[1] do redis.call('SET', 'rl:{t' .. i .. '}:u', 'used') end return 1`, nil, tenants).Err(); err != nil {
		t.Fatal(err)
	}
	p := start(t, onRedis(srv.Addr()), "--redis-budget", "5ms", "--deadline", "5ms")
	p.admin.ask(t, http.MethodDelete, "/v1/usage/t7", "").is(t, http.StatusNoContent)
	if n, err := r.Exists(t.Context(), "rl:{t7}:u").Result(); n != 0 || err != nil {
		t.Errorf("what t7 has used is still there: %d, %v", n, err)
	}
	if n, err := r.Exists(t.Context(), "rl:{t77}:u", "rl:{t6}:u").Result(); n != 2 || err != nil {
		t.Errorf("of two others %d are there, %v", n, err)
	}
}
