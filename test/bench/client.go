//go:build linux

package main

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"errors"
	"iter"
	"net"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/valyala/fasthttp"
	"golang.org/x/sys/unix"
)

// client sends prepared requests over connections that stay open, each of which has a goroutine. net/http's client
// costs more than what is measured; here an answer costs a write, two reads and a few hundred instructions.
type client struct {
	requests [][]byte
	each     int    // checks in an answer
	want     []byte // what each decision contains, or the scenario is wrong
	conns    []*connection
	total    tally  // of all that was answered
	decides  []byte // what each decision of another program contains; nil for regiond
	ask      func(*connection) (answer []byte, err error)
}

// answerTimeout is how long the server may take for an answer.
const answerTimeout = 10 * time.Second

// connection asks what comes next. What it is answered is valid until it asks again.
type connection struct {
	net.Conn
	in     *bufio.Reader
	next   int // index of the next request
	answer fasthttp.Response
	calls  *callConnection // nil but over gRPC
}

// tally counts checks by what their answers rest on. Only what the store decided, or a
// denial of its that still holds, is a decision.
type tally struct {
	decided int // exact, estimate or cached
	shed    int // turned away uncharged, since the store is busy
	other   int // any fail mode, and no decision at all
}

func (t *tally) add(o tally) {
	t.decided, t.shed, t.other = t.decided+o.decided, t.shed+o.shed, t.other+o.other
}

func (t *tally) sum() int { return t.decided + t.shed + t.other }

// count adds an answer to so many checks. Of those that are neither decided nor shed it
// returns what the first rests on, and why. decides is that of the client.
func (t *tally) count(answer []byte, each int, decides []byte) (decided int, strange string) {
	shed := 0
	if decides != nil {
		decided = bytes.Count(answer, decides)
	}
	for rest := answer; ; {
		_, after, found := bytes.Cut(rest, []byte(`"basis":"`))
		if !found {
			break
		}
		basis, _, _ := bytes.Cut(after[:min(len(after), 16)], []byte(`"`))
		switch string(basis) {
		case "exact", "estimate", "cached":
			decided++
		case "shed":
			shed++
		default:
			strange = cmp.Or(strange, string(after[:min(len(after), 100)]))
		}
		rest = after
	}
	if decided+shed < each {
		strange = cmp.Or(strange, string(answer[:min(len(answer), 100)]))
	}
	t.add(tally{decided, shed, each - decided - shed})
	return decided, strange
}

// sample is the result of one turn of a load.
type sample struct {
	tally

	answers int
	took    time.Duration
	waits   []time.Duration // from when each was due, or sent if no rate is kept
	wrongs  int
	wrong   string // one of the wrong answers
	strange string // how an answer began that is neither a decision nor shed
}

func (s *sample) join(o *sample) {
	s.add(o.tally)
	s.answers, s.wrongs, s.waits = s.answers+o.answers, s.wrongs+o.wrongs, append(s.waits, o.waits...)
	s.wrong, s.strange = cmp.Or(s.wrong, o.wrong), cmp.Or(s.strange, o.strange)
}

// quantile is the smallest wait that at least that part of all waits do not exceed, in ms.
func (s *sample) quantile(q float64) float64 {
	if len(s.waits) == 0 {
		return 0
	}
	slices.Sort(s.waits)
	rank := max(0, int(q*float64(len(s.waits))+0.999999)-1)
	return s.waits[min(rank, len(s.waits)-1)].Seconds() * 1000
}

func newClient(addr string, n int, requests [][]byte, want string) *client {
	c := &client{requests: requests, each: bytes.Count(requests[0], []byte(`"tenant"`)), want: []byte(want)}
	c.ask = c.post
	return c.open(addr, n)
}

// open opens n connections.
func (c *client) open(addr string, n int) *client {
	for i := range n {
		conn := must((&net.Dialer{}).DialContext(context.Background(), "tcp", addr))
		c.conns = append(c.conns, &connection{Conn: conn, in: bufio.NewReader(conn), next: i * len(c.requests) / n})
	}
	c.saturate(time.Millisecond) // an idle connection would be closed after two seconds
	return c
}

func (c *client) close() {
	for _, conn := range c.conns {
		_ = conn.Close()
	}
}

// post asks over HTTP/1.1. An answer without a body is its status.
func (c *client) post(conn *connection) ([]byte, error) {
	if _, err := conn.Write(c.take(conn)); err != nil {
		return nil, err
	}
	if err := conn.answer.Read(conn.in); err != nil {
		return nil, err
	}
	if body := conn.answer.Body(); len(body) > 0 {
		return body, nil
	}
	return strconv.AppendInt(nil, int64(conn.answer.StatusCode()), 10), nil
}

// take is the next request of a connection.
func (c *client) take(conn *connection) []byte {
	request := c.requests[conn.next]
	conn.next = (conn.next + 1) % len(c.requests)
	return request
}

// saturate has each connection send its next request as soon as it is answered.
func (c *client) saturate(d time.Duration) sample {
	end := time.Now().Add(d)
	return c.turn(d, func(yield func(time.Time) bool) {
		for now := time.Now(); now.Before(end) && yield(now); now = time.Now() {
		}
	})
}

// pace sends perSecond requests a second at even intervals, independent of the answers. All that is due within d is sent,
// however late a connection is free for it.
func (c *client) pace(perSecond float64, d time.Duration) sample {
	every := time.Duration(float64(time.Second) / perSecond)
	due := make(chan time.Time, d/every+1)
	go func() {
		defer close(due)
		runtime.LockOSThread() // Go's timers are not finer than a millisecond while nothing else happens
		defer runtime.UnlockOSThread()
		for at, end := time.Now(), time.Now().Add(d); at.Before(end); at = at.Add(every) {
			for left := time.Until(at); left > 0; left = time.Until(at) {
				t := unix.NsecToTimespec(left.Nanoseconds())
				_ = unix.Nanosleep(&t, nil) // fails with EINTR only
			}
			due <- at
		}
	}()
	return c.turn(d, func(yield func(time.Time) bool) {
		for at := range due {
			if !yield(at) {
				return
			}
		}
	})
}

// turn has each connection ask when something is due, and joins what came of it.
func (c *client) turn(d time.Duration, due iter.Seq[time.Time]) (all sample) {
	began := time.Now()
	var running sync.WaitGroup
	samples, errs := make([]sample, len(c.conns)), make([]error, len(c.conns))
	for i, conn := range c.conns {
		check(conn.SetDeadline(began.Add(d + answerTimeout)))
		running.Go(func() {
			for at := range due {
				answer, err := c.ask(conn)
				if err != nil {
					errs[i] = err
					return
				}
				c.count(&samples[i], answer, time.Since(at))
			}
		})
	}
	running.Wait()
	check(errors.Join(errs...))
	for i := range samples {
		all.join(&samples[i])
	}
	all.took = time.Since(began)
	c.total.add(all.tally)
	return all
}

func (c *client) count(s *sample, answer []byte, wait time.Duration) {
	decided, strange := s.count(answer, c.each, c.decides)
	s.strange = cmp.Or(s.strange, strange)
	if bytes.Count(answer, c.want) < decided {
		s.wrongs, s.wrong = s.wrongs+1, string(answer)
	}
	s.answers, s.waits = s.answers+1, append(s.waits, wait)
}
