package gossip

import (
	"context"
	"log/slog"
	"strings"
	"sync"
	"time"
)

const (
	// journalPause is how long one kind of complaint is silent after a line.
	journalPause = time.Minute
	// maxKinds bounds the kinds that are told apart.
	maxKinds = 64
)

// journal turns the library's lines, "[WARN] memberlist: …", into records: what
// it calls an error or a warning is one of our warnings, at most one of a kind a
// minute, since an unreachable peer is a line a second and news only once. The
// rest is for debugging; what people should know, Run logs itself.
//
// Its lines are also the only place where the library tells of strangers with
// another label or key, so they are counted here.
type journal struct {
	log     *slog.Logger
	metrics *metrics

	mu    sync.Mutex
	kinds map[string]*kind
}

type kind struct {
	last    time.Time
	skipped int
}

func newJournal(log *slog.Logger, m *metrics) *journal {
	return &journal{log: log, metrics: m, kinds: map[string]*kind{}}
}

// Enabled is true: strangers are counted even where nobody reads of them.
func (*journal) Enabled(context.Context, slog.Level) bool { return true }

// WithAttrs is part of slog.Handler; the library has no attributes.
func (j *journal) WithAttrs([]slog.Attr) slog.Handler { return j }

// WithGroup is part of slog.Handler; the library has no groups.
func (j *journal) WithGroup(string) slog.Handler { return j }

// Handle takes one line of the library's.
func (j *journal) Handle(ctx context.Context, r slog.Record) error {
	level, text := parseLine(r.Message)
	if reason := strangeness(text); reason != "" {
		j.metrics.refusedFor(reason)
	}
	if level == slog.LevelDebug {
		j.log.LogAttrs(ctx, level, "gossip: "+text)
		return nil
	}
	skipped, silent := j.silenced(text, r.Time)
	if silent {
		return nil
	}
	var attrs []slog.Attr
	if skipped > 0 {
		attrs = append(attrs, slog.Int("skipped", skipped))
	}
	j.log.LogAttrs(ctx, level, "gossip: "+text, attrs...)
	return nil
}

// silenced reports that a line of this kind was written within the pause, and
// otherwise how many were skipped since.
func (j *journal) silenced(text string, now time.Time) (skipped int, silent bool) {
	name := kindOf(text)
	j.mu.Lock()
	defer j.mu.Unlock()
	k := j.kinds[name]
	if k == nil {
		if len(j.kinds) == maxKinds {
			clear(j.kinds)
		}
		j.kinds[name] = &kind{last: now}
		return 0, false
	}
	if now.Sub(k.last) < journalPause {
		k.skipped++
		return 0, true
	}
	skipped, *k = k.skipped, kind{last: now}
	return skipped, false
}

// kindOf is a line's first three words: what comes later names peers.
func kindOf(text string) string {
	words := strings.Fields(text)
	return strings.Join(words[:min(3, len(words))], " ")
}

// parseLine takes the level and the library's name off a line.
func parseLine(line string) (slog.Level, string) {
	level := slog.LevelDebug
	if rest, ok := strings.CutPrefix(line, "["); ok {
		if word, text, ok := strings.Cut(rest, "] "); ok {
			line = text
			if word == "WARN" || strings.HasPrefix(word, "ERR") {
				level = slog.LevelWarn
			}
		}
	}
	return level, strings.TrimPrefix(line, "memberlist: ")
}

// strangeness says why a line's author was turned away, "" when it was not.
func strangeness(text string) string {
	switch {
	case strings.Contains(text, "with unacceptable label"):
		return "label"
	case strings.Contains(text, "Decrypt packet failed"),
		strings.Contains(text, "no installed keys could decrypt"),
		strings.Contains(text, "remote state is not encrypted"),
		strings.Contains(text, "encryption is not configured"):
		return "key"
	}
	return ""
}
