package telemetry

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"testing"
	"testing/synctest"
)

// Whoever logs never waits for who reads. What found no room is counted, and every line
// is either there, in order, or one of those.
func TestLogThatNobodyReads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, w := io.Pipe()
		o := NewAsyncWriter(w)
		report := slog.New(slog.NewJSONHandler(w, nil))
		go o.Run(report)
		const written = 3 * queuedLines
		for n := range written {
			if _, err := fmt.Fprintf(o, "{\"n\":%d}\n", n); err != nil { // would hang, if it waited
				t.Fatal(err)
			}
		}
		go func() {
			o.Close()
			_ = w.Close()
		}()
		seen, lost, last := 0, 0, -1
		for lines := bufio.NewScanner(r); lines.Scan(); {
			var line struct{ N, Lines *int }
			if err := json.Unmarshal(lines.Bytes(), &line); err != nil {
				t.Fatalf("%v: %s", err, lines.Text())
			}
			if line.Lines != nil {
				lost += *line.Lines
				continue
			}
			if *line.N <= last {
				t.Fatalf("line %d comes after %d", *line.N, last)
			}
			seen, last = seen+1, *line.N
		}
		if seen < queuedLines || lost == 0 || seen+lost != written {
			t.Errorf("%d lines are there and %d are said to be lost, %d were written", seen, lost, written)
		}
	})
}
