package daemon

import (
	"fmt"
	"io"
	"log/slog"
	"os"

	"golang.org/x/term"
)

// LogFormat resolves auto: text for a terminal, JSON for anything else.
func LogFormat(w io.Writer, format string) string {
	if format != "auto" {
		return format
	}
	if f, ok := w.(*os.File); ok && term.IsTerminal(int(f.Fd())) {
		return "text"
	}
	return "json"
}

// NewLogger writes text or JSON. level may change while the program runs.
func NewLogger(w io.Writer, format string, level *slog.LevelVar) (*slog.Logger, error) {
	options := &slog.HandlerOptions{Level: level}
	switch format {
	case "text":
		return slog.New(slog.NewTextHandler(w, options)), nil
	case "json":
		return slog.New(slog.NewJSONHandler(w, options)), nil
	}
	return nil, fmt.Errorf("--log-format is auto, text or json, not %q", format)
}
