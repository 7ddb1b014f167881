package telemetry

import (
	"fmt"
	"io"
	"log/slog"
	"os"
	"sync/atomic"
	"time"

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

// AsyncWriter queues lines of the log, so that a full pipe delays neither requests nor the
// view of the other regions. Beyond queuedLines the newest are dropped, and counted in a
// line of their own as soon as there is room.
//
//	log ──Write──▶ lines ──run──▶ stderr
//	        └─ full: lost++ ──────▶ "log lines are lost"
//
// Write may be called from any goroutine, also after close.
type AsyncWriter struct {
	to    io.Writer
	lines chan []byte
	lost  atomic.Int64
	end   chan struct{} // closed by close
	ended chan struct{} // closed by run
}

const (
	// queuedLines is some half a megabyte.
	queuedLines = 1024
	// closeTimeout bounds what the end of the program waits for who reads.
	closeTimeout = time.Second
)

// NewAsyncWriter returns a writer that passes lines on to another while its Run runs.
func NewAsyncWriter(to io.Writer) *AsyncWriter {
	return &AsyncWriter{to: to, lines: make(chan []byte, queuedLines), end: make(chan struct{}), ended: make(chan struct{})}
}

// Write takes a line and never fails.
func (o *AsyncWriter) Write(line []byte) (int, error) {
	if !o.offer(append([]byte(nil), line...)) {
		o.lost.Add(1)
	}
	return len(line), nil
}

// offer takes a line, which must not change any more, unless there is no room.
func (o *AsyncWriter) offer(line []byte) bool {
	select {
	case o.lines <- line:
		return true
	default:
		return false
	}
}

// Run writes lines until close, and then what is left. report is a logger that writes
// to the same place without waiting in line.
func (o *AsyncWriter) Run(report *slog.Logger) {
	defer close(o.ended)
	for {
		select {
		case line := <-o.lines:
			o.write(line, report)
		case <-o.end:
			for {
				select {
				case line := <-o.lines:
					o.write(line, report)
				default:
					return
				}
			}
		}
	}
}

// write ignores errors: this is where they would be logged.
func (o *AsyncWriter) write(line []byte, report *slog.Logger) {
	_, _ = o.to.Write(line)
	if n := o.lost.Swap(0); n > 0 {
		report.Warn("log lines are lost: the reader of the log does not keep up", "lines", n)
	}
}

// Close returns when all is written, after closeTimeout at most.
func (o *AsyncWriter) Close() {
	close(o.end)
	timer := time.NewTimer(closeTimeout)
	defer timer.Stop()
	select {
	case <-o.ended:
	case <-timer.C:
	}
}
