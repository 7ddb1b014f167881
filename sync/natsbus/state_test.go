package natsbus

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// However often it is tried, an absence is logged once and lasts from its
// beginning.
func TestStateTellsOfChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		s := state{logger: slog.New(slog.NewTextHandler(&log, nil))}
		for round := 1; round <= 2; round++ {
			begin := time.Now()
			for range 3 {
				s.disconnected(errors.New("refused"))
				time.Sleep(time.Second)
			}
			if got := s.read(); got.Connected || !got.Since.Equal(begin) || got.LastError != "refused" {
				t.Errorf("while it is away the status is %+v", got)
			}
			s.begin()
			s.connected("nats://nats:4222")
			if got := s.read(); !got.Connected || !got.Since.Equal(time.Now()) || got.LastError != "" {
				t.Errorf("once it is there the status is %+v", got)
			}
			if got := strings.Count(log.String(), "\n"); got != 2*round {
				t.Errorf("%d lines were logged for %d changes:\n%s", got, 2*round, &log)
			}
			time.Sleep(time.Second)
		}
	})
}

// nats.go may report an error while it still connects, before anything else is known.
func TestStateTakesAnErrorBeforeTheFirstConnection(t *testing.T) {
	var log bytes.Buffer
	b, err := New(Options{URLs: []string{"nats://nats:4222"}, Region: "eu", Logger: slog.New(slog.NewTextHandler(&log, nil))})
	if err != nil {
		t.Fatal(err)
	}
	s := session{bus: b}
	s.failed(nil, nil, errors.New("early"))
	if got := b.state.read().LastError; got != "early" || strings.Count(log.String(), "early") != 1 {
		t.Errorf("the status shows %q, the log:\n%s", got, &log)
	}
}
