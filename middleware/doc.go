// Package middleware checks requests against regiond before an HTTP handler runs.
//
//	client, err := middleware.New(middleware.Options{
//		URL:      "http://127.0.0.1:8080",
//		Identify: func(r *http.Request) (middleware.Check, error) { … },
//	})
//	http.ListenAndServe(":3000", client.Handler(api))
//
// An allowed request reaches the handler, and its response carries RateLimit and
// RateLimit-Policy. A denied request gets 429, Retry-After and a problem document; one that
// an overloaded regiond turned away gets 503 and the same.
// While regiond is unavailable Options.OnAway decides, within Options.Timeout.
//
// Client.Reserve is for work whose cost is known only at its end, such as a streamed completion: it holds an amount, and
// Reservation.Settle charges what was used.
//
// Transport is for clients of a limited API: an http.RoundTripper that waits for
// the Retry-After of a 429, with jitter, and retries.
//
// The package is a module of its own and needs only the standard library. It keeps
// no counts, so any number of processes may use one regiond.
package middleware
