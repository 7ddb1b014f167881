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

// A server that lets each customer, known by an API key, do what regiond allows.
func ExampleClient_Handler() {
	regiond := httptest.NewServer(says(http.StatusTooManyRequests, no)) // yours runs beside the server: http://127.0.0.1:8080
	defer regiond.Close()

	tenants := map[string]string{"demo-key-acme": "acme"}
	client, err := middleware.New(middleware.Options{
		URL:     regiond.URL,
		Timeout: 5 * time.Second, // leave it out: 100 ms are plenty where it matters
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
				slog.WarnContext(ctx, "not limited by regiond", "tenant", check.Tenant, "cause", d.Cause, "err", err)
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

// A question outside of HTTP: may this job start now?
func ExampleClient_Check() {
	regiond := httptest.NewServer(says(http.StatusOK, yes))
	defer regiond.Close()

	client, err := middleware.New(middleware.Options{URL: regiond.URL, Timeout: 5 * time.Second, OnAway: middleware.Closed})
	if err != nil {
		panic(err)
	}
	d, err := client.Check(context.Background(), middleware.Check{Tenant: "acme", Cost: 5})
	switch {
	case err != nil:
		fmt.Println("a mistake:", err)
	case d.Allowed:
		fmt.Println("go,", d.Remaining, "left")
	default:
		fmt.Println("not before", d.RetryAfter)
	}
	// Output: go, 19 left
}

// A client of a limited API that comes back when it is told to.
func ExampleTransport() {
	attempts := 0
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if attempts++; attempts == 1 {
			w.Header().Set("Retry-After", "0")
			w.WriteHeader(http.StatusTooManyRequests)
		}
	}))
	defer api.Close()

	client := http.Client{Transport: &middleware.Transport{}}
	resp, err := client.Get(api.URL)
	if err != nil {
		panic(err)
	}
	defer resp.Body.Close()
	fmt.Println(resp.StatusCode, "after", attempts, "attempts")
	// Output: 200 after 2 attempts
}
