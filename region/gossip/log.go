package gossip

import (
	"context"
	"log/slog"
	"strings"
)

// libraryLog receives memberlist's log lines, "<time> [WARN] memberlist: …", and
// passes them on as debug output: an unreachable peer is a line a second. They are
// the only place where memberlist reports messages of another cluster or key, so
// these are counted here.
type libraryLog struct {
	log     *slog.Logger
	refused func(reason string)
}

// Write takes one line.
func (l *libraryLog) Write(line []byte) (int, error) {
	_, text, _ := strings.Cut(strings.TrimSpace(string(line)), "[")
	switch {
	case strings.Contains(text, "with unacceptable label"):
		l.refused("label")
	case strings.Contains(text, "Decrypt packet failed"),
		strings.Contains(text, "no installed keys could decrypt"),
		strings.Contains(text, "remote state is not encrypted"),
		strings.Contains(text, "encryption is not configured"):
		l.refused("key")
	}
	l.log.LogAttrs(context.Background(), slog.LevelDebug, "gossip: ["+text)
	return len(line), nil
}
