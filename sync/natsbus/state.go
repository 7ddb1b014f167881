package natsbus

import (
	"log/slog"
	"net/url"
	"sync"
	"time"
)

// Status is what there is to show of the connection.
type Status struct {
	Connected bool
	URL       string    // of the server, without credentials; "in process" for our own; "" while there is none
	Since     time.Time // of the present connection, or of its absence; zero before Run
	LastError string    // what went wrong last, since the connection was made or before it was lost
}

// maxComplaints is how many different errors of one connection are logged.
const maxComplaints = 16

// state is what is known of the connection, logged once for each change.
type state struct {
	logger *slog.Logger

	mu         sync.Mutex
	status     Status
	told       bool            // that there is no connection
	complained map[string]bool // errors of this connection that were logged
}

func (s *state) read() Status {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.status
}

// begin forgets the errors of earlier connections.
func (s *state) begin() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.status.LastError = ""
	s.complained = make(map[string]bool)
}

func (s *state) connected(url string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.status.Connected, s.status.URL, s.status.Since = true, url, time.Now()
	s.told = false
	s.logger.Info("bus: connected to NATS", "url", url)
}

// disconnected is called when a connection is lost, and for each attempt that
// failed.
func (s *state) disconnected(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.status.Connected || s.status.Since.IsZero() {
		s.status.Since = time.Now()
	}
	s.status.Connected, s.status.URL = false, ""
	if err == nil {
		return
	}
	s.status.LastError = err.Error()
	if !s.told {
		s.told = true
		s.logger.Warn("bus: not connected to NATS; trying until it is back", "error", err)
	}
}

// complain notes an error that the connection survives.
func (s *state) complain(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	text := err.Error()
	s.status.LastError = text
	if s.complained[text] || len(s.complained) >= maxComplaints {
		return
	}
	s.complained[text] = true
	s.logger.Warn("bus: NATS reports an error", "error", err)
}

// withoutCredentials is scheme and host of a URL: what stands before the host may
// be a password or a token.
func withoutCredentials(text string) string {
	u, err := parseURL(text)
	if err != nil {
		return ""
	}
	return (&url.URL{Scheme: u.Scheme, Host: u.Host}).String()
}
