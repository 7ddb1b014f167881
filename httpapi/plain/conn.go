package plain

import (
	"bytes"
	"errors"
	"io"
	"net"
	"time"

	"github.com/valyala/fasthttp"
)

// patientListener waits where a connection cannot be accepted for now, for lack of
// descriptors: fasthttp would end.
type patientListener struct{ net.Listener }

// Accept implements net.Listener.
func (l patientListener) Accept() (net.Conn, error) {
	for wait := 5 * time.Millisecond; ; wait = min(2*wait, time.Second) {
		c, err := l.Listener.Accept()
		var passing interface{ Temporary() bool }
		if err == nil {
			return watch(c), nil
		}
		if !errors.As(err, &passing) || !passing.Temporary() {
			return nil, err
		}
		time.Sleep(wait)
	}
}

// watched notes that its client has sent all that it will: fasthttp takes that for the end of a body, also of one
// that has been cut short. And it fails where what a client sends is no header, or one that cannot end, for whose end
// fasthttp would wait.
type watched struct {
	net.Conn

	ended  bool
	first  []byte // that were read, up to len(preface)
	header headerCheck
	wrong  error
}

func watch(c net.Conn) *watched { return &watched{Conn: c, header: headerCheck{begins: true}} }

// headerCheck finds a line that ends with LF alone, in a header whose first byte was read from the connection, and not
// in one that was sent behind another at once.
type headerCheck struct {
	begins bool // with the next byte
	open   bool // it has not ended
	lines  int  // that have ended
	length int  // of the line so far
	last   byte
}

// badHeader is why no header will end, as the detail of the refusal.
type badHeader string

const (
	isTLS   badHeader = "This is TLS, and the listener has none: call it with http://, or set access.cert_file in topology.yaml."
	isHTTP2 badHeader = "This is HTTP/2 without TLS, which gRPC uses: gRPC has a listener of its own, `grpc` of the region."
	bareLF  badHeader = "A line of the header ends with LF alone; lines end with CR and LF."

	handshake = "\x16" // begins TLS
	preface   = "PRI * HTTP/2.0\r\n"
)

// Error implements error.
func (b badHeader) Error() string { return string(b) }

// NetConn returns the connection below, as that of tls.Conn does.
func (c *watched) NetConn() net.Conn { return c.Conn }

// Read implements net.Conn.
func (c *watched) Read(b []byte) (int, error) {
	if c.wrong != nil {
		return 0, c.wrong
	}
	n, err := c.Conn.Read(b)
	c.ended = c.ended || err == io.EOF //nolint:errorlint // as it is
	if missing := len(preface) - len(c.first); missing > 0 {
		c.first = append(c.first, b[:min(n, missing)]...)
		switch {
		case bytes.HasPrefix(c.first, []byte(handshake)):
			c.wrong = isTLS
		case string(c.first) == preface:
			c.wrong = isHTTP2
			return 0, c.wrong // its last byte would end a line that fasthttp refuses, and the first was read alone
		}
	}
	if c.header.read(b[:n]) {
		c.wrong = bareLF
	}
	if c.wrong != nil {
		n = min(n, 1) // a request in them would be answered, and none at all closes without an answer
	}
	return n, err
}

// enter follows the states of the connection.
func (h *headerCheck) enter(state fasthttp.ConnState) {
	switch state {
	case fasthttp.StateIdle:
		h.begins = true
	case fasthttp.StateActive:
		h.open = h.open && !h.begins // what begins the next is in fasthttp's buffer
		h.begins = false
	}
}

// read reports whether what was read has a line of the header that ends with LF alone.
func (h *headerCheck) read(b []byte) bool {
	if h.begins && len(b) > 0 {
		*h = headerCheck{open: true}
	}
	for _, c := range b {
		switch {
		case !h.open:
			return false
		case c != '\n':
			h.length++
			h.last = c
			continue
		case h.lines == 0 && h.length == 0: // an empty line before a request is skipped
		case h.last != '\r':
			return true
		case h.length > 1:
			h.lines++
		case h.lines > 0: // the empty line at the end
			h.open = false
		}
		h.length, h.last = 0, c
	}
	return false
}
