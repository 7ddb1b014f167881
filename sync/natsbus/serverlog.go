package natsbus

import (
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/regiond/regiond/internal/base/loglimit"
)

// serverLog passes nats-server's log to slog, notices as debugging.
type serverLog struct {
	logger *slog.Logger
	failed func()         // counts errors, those that are not logged too
	kinds  *loglimit.Rate // by format

	mu    sync.Mutex
	first error // fatal
}

var _ server.Logger = (*serverLog)(nil)

// Noticef is called for connections that come and go.
func (l *serverLog) Noticef(format string, args ...any) {
	l.logger.Debug("embedded NATS server: " + fmt.Sprintf(format, args...))
}

// Warnf is called for what an operator should change.
func (l *serverLog) Warnf(format string, args ...any) {
	l.kinds.Warn(l.logger, time.Now(), format, "embedded NATS server: "+fmt.Sprintf(format, args...))
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
