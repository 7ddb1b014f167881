package httpapi

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
			return &timedConn{Conn: c}, nil
		}
		if !errors.As(err, &passing) || !passing.Temporary() {
			return nil, err
		}
		time.Sleep(wait)
	}
}

// timedConn sets a deadline when it reads or writes, and leaves one that is less than deadlineSlack earlier. fasthttp sets
// four for each request, and most requests are in its buffer once the first byte is.
//
// It also notes that its client has sent all that it will: fasthttp takes that for the end of a body, also of one that has
// been cut short; and fails where a header cannot end, for which fasthttp waits.
type timedConn struct {
	net.Conn
	read, write due
	ended       bool
	header      headerCheck
}

// headerCheck finds what keeps the header of a request from ending. It sees those whose first byte was read from the
// connection, and not one that was sent behind another at once.
type headerCheck struct {
	wrong  badHeader // "" for nothing
	idle   bool      // before the first byte of a request
	open   bool      // the header has not ended
	lines  int       // that have ended
	length int       // of the line so far
	last   byte
}

// badHeader is why a header cannot end, as the detail of the refusal.
type badHeader string

const (
	isTLS   badHeader = "This is TLS, and the listener has none: call it with http://, or set access.cert_file in topology.yaml."
	isHTTP2 badHeader = "This is HTTP/2 without TLS, which gRPC uses: gRPC has a listener of its own, `grpc` of the region."
	bareLF  badHeader = "A line of the header ends with LF alone; lines end with CR and LF."
)

// Error implements error.
func (b badHeader) Error() string { return string(b) }

// enter follows the states of the connection.
func (h *headerCheck) enter(state fasthttp.ConnState) {
	if state == fasthttp.StateActive && h.idle {
		h.open = false // all that fasthttp parses first is in its buffer
	}
	h.idle = state == fasthttp.StateNew || state == fasthttp.StateIdle
}

// read looks at what was read.
func (h *headerCheck) read(b []byte) {
	if h.idle && len(b) > 0 {
		*h = headerCheck{open: true}
		if b[0] == 0x16 { // a handshake
			h.wrong = isTLS
		}
	} else if h.open && h.lines == 0 && h.length == 1 && bytes.HasPrefix(b, []byte("RI * HTTP/2.0\r\n")) {
		h.wrong = isHTTP2 // behind its first byte, which fasthttp reads alone
	}
	for h.open && len(b) > 0 {
		i := bytes.IndexByte(b, '\n')
		if i < 0 {
			h.length += len(b)
			h.last = b[len(b)-1]
			return
		}
		if i > 0 {
			h.last = b[i-1]
		}
		h.length += i
		switch {
		case h.lines == 0 && h.length == 0: // fasthttp skips it
		case h.last != '\r':
			h.wrong, h.open = bareLF, false
		case h.length > 1:
			h.lines++
		case h.lines > 0: // an empty line ends it, one before it does not
			h.open = false
		}
		h.length, h.last = 0, '\n'
		b = b[i+1:]
	}
}

// due is a deadline that was asked for, and the one in force.
type due struct{ asked, set time.Time }

// deadlineSlack is how much earlier than asked for a connection may time out: a part of all timeouts.
const deadlineSlack = 500 * time.Millisecond

// late is whether the deadline that was asked for has to be set.
func (d *due) late() bool {
	late := !d.asked.Equal(d.set) && (d.asked.IsZero() || d.asked.Before(d.set) || d.asked.Sub(d.set) > deadlineSlack)
	if late {
		d.set = d.asked
	}
	return late
}

// NetConn returns the connection below, as that of tls.Conn does.
func (c *timedConn) NetConn() net.Conn { return c.Conn }

// SetReadDeadline implements net.Conn.
func (c *timedConn) SetReadDeadline(t time.Time) error {
	c.read.asked = t
	return nil
}

// SetWriteDeadline implements net.Conn.
func (c *timedConn) SetWriteDeadline(t time.Time) error {
	c.write.asked = t
	return nil
}

// SetDeadline implements net.Conn.
func (c *timedConn) SetDeadline(t time.Time) error {
	c.read.asked, c.write.asked = t, t
	return nil
}

// Read implements net.Conn.
func (c *timedConn) Read(b []byte) (int, error) {
	if c.read.late() {
		if err := c.Conn.SetReadDeadline(c.read.set); err != nil {
			return 0, err
		}
	}
	if c.header.wrong != "" {
		return 0, c.header.wrong
	}
	n, err := c.Conn.Read(b)
	c.header.read(b[:n])
	if c.header.wrong != "" {
		n = 1 // a request in them would be answered, and none at all closes without an answer
	}
	c.ended = c.ended || err == io.EOF //nolint:errorlint // as it is
	return n, err
}

// Write implements net.Conn.
func (c *timedConn) Write(b []byte) (int, error) {
	if c.write.late() {
		if err := c.Conn.SetWriteDeadline(c.write.set); err != nil {
			return 0, err
		}
	}
	return c.Conn.Write(b)
}
