//go:build linux

package traffic

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"sync"
	"time"
)

// Timeout is how long a request waits for its answer. regiond answers within 50 ms;
// what has not come after two seconds hangs.
const Timeout = 2 * time.Second

// Connections is how many a client holds at most, as a gateway does. A request that
// finds none free waits for one, within Timeout.
const Connections = 192

// Client asks one server over connections that it keeps. It speaks HTTP by hand, so
// that an unsolicited answer is detected: a library would drop it silently.
type Client struct {
	addr string
	dial func(ctx context.Context, network, addr string) (net.Conn, error)

	slots chan struct{} // one for each connection in use

	mu    sync.Mutex
	idle  []*connection // the last used comes last
	extra []string      // answers that nobody asked for
}

type connection struct {
	net.Conn
	r *bufio.Reader
}

// NewClient asks the server at addr.
func NewClient(addr string, dial func(ctx context.Context, network, addr string) (net.Conn, error)) *Client {
	return &Client{addr: addr, dial: dial, slots: make(chan struct{}, Connections)}
}

// Check asks once, in a batch when there is more than one check, and fills in what became
// of each but for the times.
func (c *Client) Check(checks []Record, explain bool) {
	path, body := "/v1/check", []byte{}
	for i := range checks {
		body = fmt.Appendf(append(body, ','), `{"tenant":%q,"cost":%d}`, checks[i].Tenant, checks[i].Cost)
	}
	body = body[1:]
	if len(checks) > 1 {
		path, body = path+":batch", fmt.Appendf(nil, `{"checks":[%s]}`, body)
	}
	if explain {
		path += "?explain=1"
	}
	status, answer, err := c.Do("POST", path, string(body))
	var batch struct{ Results []result }
	switch {
	case err != nil || checks[0].Bare:
	case len(checks) == 1:
		batch.Results = make([]result, 1)
		err = json.Unmarshal(answer, &batch.Results[0])
		batch.Results[0].Status = status
	case status == http.StatusServiceUnavailable: // turned away unread, all by one answer
		one := result{Status: status}
		err = json.Unmarshal(answer, &one)
		batch.Results = slices.Repeat([]result{one}, len(checks))
	default:
		if err = json.Unmarshal(answer, &batch); err == nil && len(batch.Results) != len(checks) {
			err = fmt.Errorf("status %d with %d results for %d checks", status, len(batch.Results), len(checks))
		}
	}
	for i := range checks {
		if err != nil {
			checks[i].Err = err.Error()
		} else if len(batch.Results) > 0 {
			checks[i].Status, checks[i].Answer = batch.Results[i].Status, batch.Results[i].Answer
		}
	}
}

// result is the answer to one check of a batch.
type result struct {
	Status int
	Answer
}

// Do asks once and returns the answer's status and body. It never repeats a request
// that was sent, as a gateway must not: it may have been charged.
func (c *Client) Do(method, path, body string) (status int, answer []byte, err error) {
	deadline := time.Now().Add(Timeout)
	if !c.slot(Timeout) {
		return 0, nil, fmt.Errorf("all %d connections wait for answers", Connections)
	}
	defer func() { <-c.slots }()
	conn, err := c.take(deadline)
	if err != nil {
		return 0, nil, fmt.Errorf("connect: %w", err)
	}
	_ = conn.SetDeadline(deadline) // an error shows when it is used
	status, answer, err = conn.ask(method, path, body)
	if err != nil {
		_ = conn.Close()
		return status, answer, err
	}
	c.put(conn)
	return status, answer, nil
}

// slot waits for leave to use a connection.
func (c *Client) slot(most time.Duration) bool {
	select {
	case c.slots <- struct{}{}:
		return true
	default:
	}
	late := time.NewTimer(most)
	defer late.Stop()
	select {
	case c.slots <- struct{}{}:
		return true
	case <-late.C:
		return false
	}
}

func (c *connection) ask(method, path, body string) (status int, answer []byte, err error) {
	_, err = fmt.Fprintf(c, "%s %s HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Requested-With: test\r\nContent-Length: %d\r\n\r\n%s", method, path, len(body), body)
	if err != nil {
		return 0, nil, fmt.Errorf("send: %w", err)
	}
	response, err := http.ReadResponse(c.r, nil)
	if err != nil {
		return 0, nil, fmt.Errorf("read the answer: %w", err)
	}
	defer response.Body.Close()
	answer, err = io.ReadAll(response.Body)
	if err == nil && response.Close {
		err = errors.New("the server closes the connection")
	}
	return response.StatusCode, answer, err
}

// take returns an idle connection that is still good, or a new one.
func (c *Client) take(deadline time.Time) (*connection, error) {
	for conn := c.pop(); conn != nil; conn = c.pop() {
		if c.silent(conn) {
			return conn, nil
		}
	}
	ctx, cancel := context.WithDeadline(context.Background(), deadline)
	defer cancel()
	raw, err := c.dial(ctx, "tcp", c.addr)
	if err != nil {
		return nil, err
	}
	return &connection{Conn: raw, r: bufio.NewReader(raw)}, nil
}

// put keeps a connection for the next request. What came behind the answer is noted.
func (c *Client) put(conn *connection) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if n := conn.r.Buffered(); n > 0 {
		c.extra = append(c.extra, fmt.Sprintf("%d bytes behind an answer", n))
		_ = conn.Close()
		return
	}
	c.idle = append(c.idle, conn)
}

// silent reports whether nothing lies on an idle connection, neither an answer nor its
// end, and closes it otherwise.
func (c *Client) silent(conn *connection) bool {
	there, err := pending(conn.Conn)
	if !there && err == nil {
		return true
	}
	if there {
		c.mu.Lock()
		c.extra = append(c.extra, "an answer on an idle connection")
		c.mu.Unlock()
	}
	_ = conn.Close()
	return false
}

// HangUp closes the connections that no request is on.
func (c *Client) HangUp() {
	for conn := c.pop(); conn != nil; conn = c.pop() {
		if c.silent(conn) {
			_ = conn.Close()
		}
	}
}

// pop takes an idle connection, nil for none.
func (c *Client) pop() *connection {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := len(c.idle)
	if n == 0 {
		return nil
	}
	conn := c.idle[n-1]
	c.idle = c.idle[:n-1]
	return conn
}

// Extra is what came without being asked for, as far as has been seen: HangUp looks at
// all connections.
func (c *Client) Extra() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.extra)
}
