// Command go is an API limited by regiond, with package middleware:
//
//	go run . --listen 127.0.0.1:3000 --regiond http://127.0.0.1:8080
//
// GET /status costs one unit, GET /search/… five.
package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/regiond/regiond/middleware"
)

func main() {
	listen := flag.String("listen", "127.0.0.1:3000", "address to serve on")
	regiond := flag.String("regiond", "http://127.0.0.1:8080", "regiond's data listener")
	closed := flag.Bool("closed", false, "refuse requests while regiond is away")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, *listen, *regiond, *closed); err != nil {
		slog.Error("stopped", "err", err)
		os.Exit(1)
	}
}

// run serves until ctx ends.
func run(ctx context.Context, listen, regiond string, closed bool) error {
	handler, err := limited(regiond, closed, api())
	if err != nil {
		return err
	}
	server := &http.Server{Addr: listen, Handler: handler, ReadHeaderTimeout: 5 * time.Second}
	failed := make(chan error, 1)
	go func() { failed <- server.ListenAndServe() }()
	select {
	case err := <-failed:
		return err
	case <-ctx.Done():
	}
	// Requests in progress have five seconds to end.
	grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	return server.Shutdown(grace)
}

// limited checks every request to an API against regiond.
func limited(regiond string, closed bool, api http.Handler) (http.Handler, error) {
	o := middleware.Options{URL: regiond, Identify: identify, Observe: observe}
	if closed {
		o.OnAway = middleware.Closed
	}
	client, err := middleware.New(o)
	if err != nil {
		return nil, err
	}
	return client.Handler(api), nil
}

// identify charges the tenant of the request's key. CHANGE: where your keys are.
// Without a valid key nothing is charged or served.
func identify(r *http.Request) (middleware.Check, error) {
	keys := map[string]string{"demo-key-acme": "acme", "demo-key-globex": "globex", "demo-key-hobby": "hobby"}
	tenant, ok := keys[r.Header.Get("X-API-Key")]
	if !ok {
		return middleware.Check{}, errors.New("no such key")
	}
	check := middleware.Check{Tenant: tenant, Cost: 1}
	if strings.HasPrefix(r.URL.Path, "/search/") {
		check.Cost = 5
	}
	// The tenant is responsible for its users, so X-User is not authenticated here.
	if user := r.Header.Get("X-User"); user != "" {
		check.Dimensions = map[string]string{"user": user}
	}
	return check, nil
}

// observe logs the requests that were not limited.
func observe(ctx context.Context, check middleware.Check, d middleware.Decision, err error) {
	if d.Away || err != nil {
		slog.WarnContext(ctx, "not decided by regiond", "tenant", check.Tenant, "allowed", d.Allowed, "cause", cmp.Or(err, d.Cause))
	}
}

// api is the protected API.
func api() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /status", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "all is well") })
	mux.HandleFunc("GET /search/{words}", func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, "nothing found for %q\n", r.PathValue("words"))
	})
	return mux
}
