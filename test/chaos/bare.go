//go:build linux

package chaos

import (
	"io"
	"net/http"
	"os"
	"time"
)

// ServeBare is the bare handler: it reads a request and gives a fixed answer. What its
// callers wait for is the machine's latency, and the baseline for regiond's.
func ServeBare(addr string) error {
	// As long as regiond's answer.
	answer := append(make([]byte, 0, 400), `{"allowed":true,"policy":"bare","name":"limit","limit":100,"remaining":99}`...)
	for len(answer) < cap(answer) {
		answer = append(answer, ' ')
	}
	server := &http.Server{
		Addr: addr, ReadHeaderTimeout: 2 * time.Second,
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			w.Header().Set("Content-Type", "application/json")
			_, _ = w.Write(answer)
		}),
	}
	return server.ListenAndServe()
}

// BareFromEnv serves as the bare handler if the environment asks for it; it does not
// return then. A test binary's TestMain calls it first.
func BareFromEnv() {
	addr := os.Getenv(BareEnv)
	if addr == "" {
		return
	}
	if err := ServeBare(addr); err != nil {
		_, _ = io.WriteString(os.Stderr, "bare handler: "+err.Error()+"\n")
	}
	os.Exit(1)
}
