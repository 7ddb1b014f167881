package daemon

import (
	"io"
	"log/slog"
	"sync/atomic"
	"time"
)

// AsyncWriter is where lines of the log wait for who reads them, so that nobody who logs
// waits: a full pipe would hold up requests and what watches the other regions. Beyond
// backlogLines the newest are dropped, and counted in a line of their own as soon as
// there is room.
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
	// backlogLines is some half a megabyte.
	backlogLines = 1024
	// backlogEnd bounds what the end of the program waits for who reads.
	backlogEnd = time.Second
)

func NewAsyncWriter(to io.Writer) *AsyncWriter {
	return &AsyncWriter{to: to, lines: make(chan []byte, backlogLines), end: make(chan struct{}), ended: make(chan struct{})}
}

// Write takes a line and never fails.
func (o *AsyncWriter) Write(line []byte) (int, error) {
	select {
	case o.lines <- append([]byte(nil), line...):
	default:
		o.lost.Add(1)
	}
	return len(line), nil
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

// write errors are nobody's to hear: this is where they would be logged.
func (o *AsyncWriter) write(line []byte, report *slog.Logger) {
	_, _ = o.to.Write(line)
	if n := o.lost.Swap(0); n > 0 {
		report.Warn("log lines are lost: whoever reads the log does not keep up", "lines", n)
	}
}

// Close returns when all is written, or nobody has read for backlogEnd.
func (o *AsyncWriter) Close() {
	close(o.end)
	timer := time.NewTimer(backlogEnd)
	defer timer.Stop()
	select {
	case <-o.ended:
	case <-timer.C:
	}
}
