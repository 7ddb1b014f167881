package middleware_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"time"

	"github.com/regiond/regiond/middleware"
)

// A server that limits each customer, known by an API key.
func ExampleClient_Handler() {
	regiond := httptest.NewServer(answers(http.StatusTooManyRequests, denied)) // in production http://127.0.0.1:8080
	defer regiond.Close()

	tenants := map[string]string{"demo-key-acme": "acme"}
	client, err := middleware.New(middleware.Options{
		URL:     regiond.URL,
		Timeout: 5 * time.Second, // the default of 100 ms is plenty in production
		OnAway:  middleware.Open,
		Identify: func(r *http.Request) (middleware.Check, error) {
			tenant, ok := tenants[r.Header.Get("X-API-Key")]
			if !ok {
				return middleware.Check{}, errors.New("no such key")
			}
			return middleware.Check{Tenant: tenant}, nil
		},
		Observe: func(ctx context.Context, check middleware.Check, d middleware.Decision, err error) {
			if d.Away || err != nil {
				slog.WarnContext(ctx, "not limited", "tenant", check.Tenant, "cause", d.Cause, "err", err)
			}
		},
	})
	if err != nil {
		panic(err)
	}
	api := client.Handler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintln(w, "hello")
	}))

	request := httptest.NewRequest(http.MethodGet, "/", nil)
	request.Header.Set("X-API-Key", "demo-key-acme")
	answer := httptest.NewRecorder()
	api.ServeHTTP(answer, request)
	fmt.Println(answer.Code, "Retry-After:", answer.Header().Get("Retry-After"))
	// Output: 429 Retry-After: 7
}
