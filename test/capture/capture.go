// Package capture keeps what a program prints while tests read it, and waits for what is
// still to come.
package capture

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"
)

// Timeout is how long Eventually waits: far above what anything takes on a busy machine.
const Timeout = time.Minute

// Eventually calls check until it returns no error.
func Eventually(t testing.TB, check func() error) {
	t.Helper()
	deadline := time.After(Timeout)
	again := time.NewTicker(5 * time.Millisecond)
	defer again.Stop()
	for {
		err := check()
		if err == nil {
			return
		}
		select {
		case <-again.C:
		case <-deadline:
			t.Fatalf("still after %v: %v", Timeout, err)
		}
	}
}

// Log is output, such as a log in JSON, that is read while it is written.
type Log struct {
	Hook func(string) // called with each line before it is kept; set before use

	mu   sync.Mutex
	text bytes.Buffer // guarded by mu
}

// Write implements io.Writer.
func (l *Log) Write(b []byte) (int, error) {
	if l.Hook != nil {
		l.Hook(string(b))
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

// String is everything that was written so far.
func (l *Log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// Lines returns the lines with that message, parsed.
func (l *Log) Lines(message string) []map[string]any {
	var found []map[string]any
	for line := range strings.Lines(l.String()) {
		var fields map[string]any
		if json.Unmarshal([]byte(line), &fields) == nil && fields["msg"] == message {
			found = append(found, fields)
		}
	}
	return found
}

// Await waits for the n-th line with that message.
func (l *Log) Await(t testing.TB, message string, n int) map[string]any {
	t.Helper()
	Eventually(t, func() error {
		if len(l.Lines(message)) < n {
			return fmt.Errorf("the log has %q less than %d times:\n%s", message, n, l)
		}
		return nil
	})
	return l.Lines(message)[n-1]
}
