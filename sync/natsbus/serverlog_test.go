package natsbus

import (
	"bytes"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// A peer that knocks every second with a wrong secret is counted each time and
// logged a few times a minute; what else happens meanwhile is not drowned.
func TestServerLogLimits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var buf bytes.Buffer
		counted := 0
		l := newServerLog(slog.New(slog.NewTextHandler(&buf, nil)), func() { counted++ })
		for i := range 120 {
			l.Errorf("refused %d", i)
			time.Sleep(time.Second)
		}
		l.Warnf("something else")
		l.Noticef("a detail")
		if counted != 120 {
			t.Errorf("%d errors counted, want 120", counted)
		}
		if got := strings.Count(buf.String(), "refused"); got != 2*logBurst {
			t.Errorf("logged %d times in two minutes, want %d:\n%s", got, 2*logBurst, &buf)
		}
		if got := strings.Count(buf.String(), "not logged for a minute"); got != 2 {
			t.Errorf("said %d times that more is not logged, want 2", got)
		}
		if !strings.Contains(buf.String(), "something else") || strings.Contains(buf.String(), "a detail") {
			t.Errorf("the log has\n%s", &buf)
		}
	})
}

func TestServerLogFatal(t *testing.T) {
	l := newServerLog(slog.New(slog.DiscardHandler), func() {})
	if err := l.fatal(); err != nil {
		t.Fatal(err)
	}
	for i := range 2 {
		l.Fatalf("port %d is taken", i)
	}
	if got := fmt.Sprint(l.fatal()); got != "port 0 is taken" {
		t.Errorf("the first fatal error is %q", got)
	}
}
