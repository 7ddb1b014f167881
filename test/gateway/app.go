package gateway

import (
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
)

// Greeting is what an App answers to everything.
const Greeting = "hello from the app\n"

// Seen is one request as a server received it.
type Seen struct {
	Method, Host, URI, Body string
	Header                  http.Header
}

// App is a server that remembers what reached it. It stands behind a gateway, or
// in regiond's place. It is safe for concurrent use.
type App struct {
	// Addr is host:port on loopback.
	Addr string

	mu  sync.Mutex
	got []Seen // guarded by mu
}

// NewApp starts the API behind a gateway, which greets whoever asks.
func NewApp(t *testing.T) *App {
	t.Helper()
	return NewStandIn(t, http.StatusOK, nil, Greeting)
}

// NewStandIn starts a server that answers in regiond's place, always the same.
func NewStandIn(t *testing.T, status int, header http.Header, body string) *App {
	t.Helper()
	a := &App{}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		text, _ := io.ReadAll(r.Body)
		a.mu.Lock()
		a.got = append(a.got, Seen{Method: r.Method, Host: r.Host, URI: r.RequestURI, Body: string(text), Header: r.Header.Clone()})
		a.mu.Unlock()
		for name, values := range header {
			w.Header()[name] = values
		}
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	}))
	t.Cleanup(server.Close)
	a.Addr = server.Listener.Addr().String()
	return a
}

// Requests returns what has reached the app so far, oldest first.
func (a *App) Requests() []Seen {
	a.mu.Lock()
	defer a.mu.Unlock()
	return append([]Seen(nil), a.got...)
}
