package natsbus

import (
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/nats-io/nats-server/v2/server"
)

// What nats-server may say of one kind, so that a peer that knocks every second
// with a wrong secret does not fill a disk.
const (
	logBurst  = 5
	logPeriod = time.Minute
)

// serverLog gives slog what nats-server says. Notices are debugging to us: what
// matters of them, watch says.
type serverLog struct {
	logger *slog.Logger
	failed func() // counts errors, those that are not logged too

	mu    sync.Mutex
	first error                // fatal
	kinds map[string]*logLimit // by format: there are as many as nats-server's source has
}

type logLimit struct {
	since time.Time
	said  int
}

var _ server.Logger = (*serverLog)(nil)

func newServerLog(l *slog.Logger, failed func()) *serverLog {
	return &serverLog{logger: l, failed: failed, kinds: make(map[string]*logLimit)}
}

// Noticef is told of connections that come and go.
func (l *serverLog) Noticef(format string, args ...any) {
	l.logger.Debug("embedded NATS server: " + fmt.Sprintf(format, args...))
}

// Warnf is told of what an operator should change.
func (l *serverLog) Warnf(format string, args ...any) { l.warn(format, args) }

// Errorf is told of refused peers and of failed connections: nothing that we do
// not survive.
func (l *serverLog) Errorf(format string, args ...any) {
	l.failed()
	l.warn(format, args)
}

// Fatalf is told of what prevents the start. It returns: to exit is not for a
// library to decide.
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

func (l *serverLog) warn(format string, args []any) {
	if last, ok := l.allow(format, time.Now()); ok {
		attrs := []any{}
		if last {
			attrs = append(attrs, "further", "not logged for a minute")
		}
		l.logger.Warn("embedded NATS server: "+fmt.Sprintf(format, args...), attrs...)
	}
}

// allow tells whether to log a kind at now, and whether it is the last for a while.
func (l *serverLog) allow(kind string, now time.Time) (last, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	k := l.kinds[kind]
	if k == nil || now.Sub(k.since) >= logPeriod {
		k = &logLimit{since: now}
		l.kinds[kind] = k
	}
	k.said++
	return k.said == logBurst, k.said <= logBurst
}
