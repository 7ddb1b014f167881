// Package middleware asks regiond before an HTTP handler runs.
//
//	client, err := middleware.New(middleware.Options{
//		URL:      "http://127.0.0.1:8080",
//		Identify: func(r *http.Request) (middleware.Check, error) { … },
//	})
//	http.ListenAndServe(":3000", client.Handler(api))
//
// A request that is allowed reaches the handler and its answer says what is left
// (RateLimit, RateLimit-Policy). A request that is denied gets 429, Retry-After and
// a problem document. While regiond is away a choice made beforehand takes over
// (Options.OnAway), within a time that is bounded (Options.Timeout).
//
// Transport is for the other side: an http.RoundTripper that waits as long as a
// 429 says, adds a little chance, and tries again.
//
// The package needs the standard library only and is a module of its own. It
// keeps no counts: those are in regiond, so any number of processes may ask.
package middleware
