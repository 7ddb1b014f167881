package natsbus

import (
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"golang.org/x/time/rate"
)

// Of one kind of warning logBurst are logged at once and further ones each logPeriod, so
// that a peer that connects every second with a wrong secret does not fill a disk.
const (
	logBurst  = 5
	logPeriod = 12 * time.Second
)

// serverLog passes nats-server's log to slog, notices as debugging.
type serverLog struct {
	logger *slog.Logger
	failed func() // counts errors, those that are not logged too

	mu    sync.Mutex
	first error                    // fatal
	kinds map[string]*rate.Limiter // by format: nats-server's source has a fixed number
}

var _ server.Logger = (*serverLog)(nil)

// Noticef is called for connections that come and go.
func (l *serverLog) Noticef(format string, args ...any) {
	l.logger.Debug("embedded NATS server: " + fmt.Sprintf(format, args...))
}

// Warnf is called for what an operator should change.
func (l *serverLog) Warnf(format string, args ...any) {
	l.mu.Lock()
	kind := l.kinds[format]
	if kind == nil {
		kind = rate.NewLimiter(rate.Every(logPeriod), logBurst)
		l.kinds[format] = kind
	}
	l.mu.Unlock()
	if kind.Allow() {
		l.logger.Warn("embedded NATS server: " + fmt.Sprintf(format, args...))
	}
}

// Errorf is called for refused peers and failed connections: nothing that stops the server.
func (l *serverLog) Errorf(format string, args ...any) {
	l.failed()
	l.Warnf(format, args...)
}

// Fatalf is called for what prevents the start. It returns: a library does not exit.
func (l *serverLog) Fatalf(format string, args ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.first == nil {
		l.first = fmt.Errorf(format, args...)
	}
}

// Debugf and Tracef are never called: neither is switched on.
func (l *serverLog) Debugf(string, ...any) {}

// Tracef is never called.
func (l *serverLog) Tracef(string, ...any) {}

// fatal is what prevented the start.
func (l *serverLog) fatal() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.first
}
