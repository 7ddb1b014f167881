package faultproxy

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"strconv"
)

// Bounds of what the proxy takes for RESP; beyond them the stream is out of step.
const (
	maxBulk  = 512 << 20 // Redis's own bound on one string
	maxItems = 1 << 20   // elements of one aggregate
	maxDepth = 32        // aggregates within aggregates
)

var errMalformed = errors.New("not RESP")

// readReply reads one reply, whole, in the bytes it came in. A push is a message
// that answers no command. With an error it returns what had been read so far.
func readReply(r *bufio.Reader) (raw []byte, push bool, err error) {
	first, err := r.Peek(1)
	if err != nil {
		return nil, false, err
	}
	push = first[0] == '>' // now, for first is the reader's own memory
	var buf bytes.Buffer
	err = copyValue(&buf, r, 0)
	return buf.Bytes(), push, err
}

// copyValue copies one RESP2 or RESP3 value. Attributes belong to the value that
// follows them.
func copyValue(buf *bytes.Buffer, r *bufio.Reader, depth int) error {
	if depth > maxDepth {
		return fmt.Errorf("%w: nested deeper than %d", errMalformed, maxDepth)
	}
	line, err := copyLine(buf, r)
	if err != nil {
		return err
	}
	switch kind := line[0]; kind {
	case '+', '-', ':', '_', '#', ',', '(':
		return nil
	case '$', '!', '=':
		n, err := length(line, maxBulk)
		if err != nil || n < 0 {
			return err
		}
		return copyBulk(buf, r, n)
	case '*', '~', '>', '%', '|':
		n, err := length(line, maxItems)
		if err != nil {
			return err
		}
		switch kind { // pairs count twice
		case '%':
			n *= 2
		case '|':
			n = 2*n + 1
		}
		for range max(n, 0) {
			if err := copyValue(buf, r, depth+1); err != nil {
				return err
			}
		}
		return nil
	default:
		return fmt.Errorf("%w: a value begins with %q", errMalformed, kind)
	}
}

// copyLine copies a line and returns it without its end; it has at least a byte.
func copyLine(buf *bytes.Buffer, r *bufio.Reader) ([]byte, error) {
	line, err := r.ReadBytes('\n')
	buf.Write(line)
	if err != nil {
		return nil, err
	}
	text, found := bytes.CutSuffix(line, []byte("\r\n"))
	if !found || len(text) == 0 {
		return nil, fmt.Errorf("%w: line %q", errMalformed, line)
	}
	return text, nil
}

// copyBulk copies n bytes and their end. It takes memory as they arrive, not as
// they are announced.
func copyBulk(buf *bytes.Buffer, r *bufio.Reader, n int) error {
	if _, err := io.CopyN(buf, r, int64(n)+2); err != nil {
		return err
	}
	if !bytes.HasSuffix(buf.Bytes(), []byte("\r\n")) {
		return fmt.Errorf("%w: a string of %d bytes does not end there", errMalformed, n)
	}
	return nil
}

// length reads the number after a line's first byte; −1 stands for null.
func length(line []byte, most int) (int, error) {
	n, err := strconv.Atoi(string(line[1:]))
	if err != nil || n < -1 || n > most {
		return 0, fmt.Errorf("%w: length %q", errMalformed, line)
	}
	return n, nil
}

// readCommand reads one request in the bytes it came in, and the name of its
// command: an array of strings, as clients send, or words on a line, as people
// type. The name is "" for what the server does not answer.
func readCommand(r *bufio.Reader) (raw []byte, name string, err error) {
	first, err := r.Peek(1)
	if err != nil {
		return nil, "", err
	}
	if first[0] != '*' {
		raw, err = r.ReadBytes('\n')
		if words := bytes.Fields(raw); len(words) > 0 {
			name = string(words[0])
		}
		return raw, name, err
	}
	raw, _, err = readReply(r)
	if parts := bytes.SplitN(raw, []byte("\r\n"), 4); err == nil && len(parts) == 4 { // *n, $length, name, …
		name = string(parts[2])
	}
	return raw, name, err
}
