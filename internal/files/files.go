// Package files reads files that an operator names.
package files

import (
	"fmt"
	"io"
	"os"
	"syscall"
	"time"
)

const (
	// maxBytes bounds what is read of a file: a device such as /dev/zero has no end.
	maxBytes = 16 << 20
	// readTimeout bounds the wait for what another program writes into a pipe.
	readTimeout = 5 * time.Second
)

// Read is os.ReadFile for files that an operator names. It returns an error for what os.ReadFile would read for good: a
// FIFO into which nobody writes, a device, or more than memory holds.
func Read(name string) ([]byte, error) {
	f, err := os.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	_ = f.SetReadDeadline(time.Now().Add(readTimeout)) // only pipes have one
	content, err := io.ReadAll(io.LimitReader(f, maxBytes+1))
	if err == nil && len(content) > maxBytes {
		err = fmt.Errorf("read %s: it has more than %d bytes", name, maxBytes)
	}
	return content, err
}
