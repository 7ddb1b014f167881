//go:build linux

package chaos

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/regiond/regiond/test/chaos/traffic"
)

// adversarial has many callers do something to a region's regiond until it is healed,
// over and over. do returns an error only for what regiond must not do.
func (w *World) adversarial(what, name string, callers int, do func(ctx context.Context, r *Region, caller, n int) error) Fault {
	r := w.region(name)
	return background(fmt.Sprintf("%s at %s", what, name), func(ctx context.Context) error {
		var wg sync.WaitGroup
		failed := make(chan error, callers)
		for caller := range callers {
			wg.Go(func() {
				for n := 0; ctx.Err() == nil; n++ {
					if err := do(ctx, r, caller, n); err != nil {
						failed <- fmt.Errorf("%s: %w", what, err)
						return
					}
				}
			})
		}
		wg.Wait()
		close(failed)
		return <-failed // nil if there is none
	})
}

// SlowCallers hold connections open and never complete a request: some are silent, some
// send a header byte by byte, some a body, some a header of a megabyte. Callers that are
// disconnected connect again after two seconds.
func (w *World) SlowCallers(name string, callers int) Fault {
	silent, header := "", "POST /v1/check HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Long: "
	body, huge := "POST /v1/check HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 1000\r\n\r\n", header+strings.Repeat("x", 1<<20)
	openings := []string{silent, header, body, header, silent, body, header, huge}
	return w.adversarial(fmt.Sprintf("%d slow callers", callers), name, callers, func(ctx context.Context, r *Region, caller, n int) error {
		if n == 0 { // one after the other
			pause(ctx, time.Duration(caller)*5*time.Millisecond)
		}
		opening := openings[caller%len(openings)]
		conn, err := r.ns.Dial(ctx, "tcp", httpAddr)
		if err != nil {
			pause(ctx, 2*time.Second)
			return nil
		}
		defer conn.Close()
		stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
		defer stop()
		_, err = io.WriteString(conn, opening)
		for err == nil && ctx.Err() == nil {
			pause(ctx, 500*time.Millisecond)
			if opening != silent {
				_, err = io.WriteString(conn, "x")
			}
		}
		pause(ctx, 2*time.Second)
		return nil
	})
}

// Churn makes a new connection for each request, rate times a second.
func (w *World) Churn(name string, rate int) Fault {
	const callers = 8
	return w.adversarial(fmt.Sprintf("%d new connections a second", rate), name, callers, func(ctx context.Context, r *Region, _, _ int) error {
		c := traffic.NewClient(httpAddr, r.ns.Dial)
		_, _, _ = c.Do("GET", "/v1/usage/"+traffic.Ledger+"-00", "") // only the connection matters
		c.HangUp()
		pause(ctx, callers*time.Second/time.Duration(rate))
		return nil
	})
}

// NewTenants sends a request for a new tenant rate times a second.
func (w *World) NewTenants(name string, rate int) Fault {
	return w.rapid(fmt.Sprintf("%d new tenants a second", rate), name, rate, func(caller, n int) string {
		return fmt.Sprintf("crowd-%d-%d", caller, n)
	})
}

// exhausted is a tenant whose limit is used up.
const exhausted = traffic.Edge + "-mob"

// HotTenant sends requests for one tenant over its limit, rate times a second.
func (w *World) HotTenant(name string, rate int) Fault {
	return w.rapid(fmt.Sprintf("%d requests a second of one tenant", rate), name, rate, func(int, int) string { return exhausted })
}

func (w *World) rapid(what, name string, rate int, tenant func(caller, n int) string) Fault {
	const callers = 8
	var clients [callers]*traffic.Client
	for i := range clients {
		clients[i] = traffic.NewClient(httpAddr, w.region(name).ns.Dial)
	}
	return w.adversarial(what, name, callers, func(ctx context.Context, _ *Region, caller, n int) error {
		status, _, err := clients[caller].Do("POST", "/v1/check", fmt.Sprintf(`{"tenant":%q}`, tenant(caller, n)))
		if err == nil && status != http.StatusOK && status != http.StatusTooManyRequests {
			return fmt.Errorf("status %d", status)
		}
		pause(ctx, callers*time.Second/time.Duration(rate))
		return nil
	}).then(func() error {
		for _, c := range clients {
			c.HangUp()
		}
		return nil
	})
}

// malformed are bodies and paths with invalid tenants and costs.
func malformed() (bodies, paths []string) {
	for _, id := range []string{
		"", "* >", "a.b>c d", "{x}", "}:t.x", "a\r\nSET b c", "a\u0000b", "\u202eabc", strings.Repeat("x", 257), strings.Repeat("x", 1<<20),
	} {
		bodies = append(bodies, fmt.Sprintf(`{"tenant":%q}`, id))
	}
	bodies = append(bodies,
		`{"tenant":"a","tenant":"b"}`, `{"tenant":"a","cost":1e999}`, `{"tenant":"a","cost":-1}`, `{"tenant":"a","cost":0}`,
		`{"tenant":"a","cost":"0x10"}`, `{"tenant":["a"]}`, `[`, `{"tenant":"a"}{"tenant":"a"}`, strings.Repeat("[", 100_000),
	)
	return bodies, []string{"/v1/usage/%7bx%7d", "/v1/usage/a%0d%0ab", "/v1/usage/%00", "/v1/usage/a%20b", "/v1/usage/%e2%80%aea"}
}

// BadRequests sends invalid tenants and costs. Each is refused, and Redis then holds no
// unexpected key.
func (w *World) BadRequests(name string) Fault {
	bodies, paths := malformed()
	return w.adversarial("malformed requests", name, 4, func(ctx context.Context, r *Region, caller, n int) error {
		c := traffic.NewClient(httpAddr, r.ns.Dial)
		defer c.HangUp()
		method, path, body := "POST", "/v1/check", ""
		if n = n*4 + caller; n%3 > 0 {
			body = bodies[n%len(bodies)]
		} else {
			method, path = "GET", paths[n%len(paths)]
		}
		status, _, err := c.Do(method, path, body)
		var cut *net.OpError
		if err == nil && (status < 400 || status >= 500 || status == http.StatusTooManyRequests) {
			return fmt.Errorf("%s %s %.80q: status %d", method, path, body, status)
		} else if err != nil && !errors.As(err, &cut) && !errors.Is(err, io.ErrUnexpectedEOF) && !strings.Contains(err.Error(), "closes the connection") {
			return fmt.Errorf("%s %s %.80q: %w", method, path, body, err)
		}
		pause(ctx, 20*time.Millisecond)
		return nil
	}).then(w.region(name).onlyOurs)
}

// onlyOurs returns an error for a key in Redis that no request of this run explains.
func (r *Region) onlyOurs() error {
	keys, err := r.store.Keys(context.Background(), "*").Result()
	if err != nil {
		return err
	}
	for _, key := range keys {
		_, rest, _ := strings.Cut(key, "{")
		class, _, _ := strings.Cut(rest, "-")
		switch class {
		case traffic.Ledger, traffic.Dear, traffic.Hot, traffic.Edge, traffic.Quiet:
		default:
			if !strings.HasPrefix(key, "regiond:") && key != "rl:region" && !strings.HasPrefix(key, "rl:life") {
				return fmt.Errorf("%s: an unexpected key in Redis: %q", r.Name, key)
			}
		}
	}
	return nil
}
