//go:build linux

package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"runtime"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// client sends prepared requests over connections that stay open. net/http's client
// costs more than what is measured; here an answer costs one read and one write.
//
//	thread ─ epoll ─┬─ connection: write, read, write, …
//	                └─ timer: how many requests are due, if a rate is kept
type client struct {
	requests [][]byte
	each     int    // checks in a request
	want     []byte // what each decision contains, or the scenario is wrong
	conns    []*connection
	total    tally  // of all that was answered
	decides  []byte // what each decision of another program contains; nil for regiond
	// rewrite changes a request before it is sent; nil for none. Several threads call it,
	// and then each connection has a copy of its own.
	rewrite func(request []byte)
	// follow writes the request that follows an answer into the given memory, and the next of requests is sent after
	// that one's; nothing: the next is. nil for never.
	follow func(request, answer []byte) []byte
	hello  []byte // what a connection begins with, over gRPC; nil for HTTP/1.1
}

const (
	// threads share the connections: one for each processor of the machine that the goals
	// are stated for.
	threads = 2
	// answerTimeout is how long the server may take for an answer.
	answerTimeout = 10 * time.Second
)

type connection struct {
	fd      int
	buf     []byte
	got     int
	next    int       // index of the next request
	own     []byte    // copy of the request that is changed
	follows []byte    // request that follows the last answer; empty: the next does
	due     time.Time // of the request under way
	pending bool
	id      uint32 // over gRPC: of the next stream, less one
	ended   int    // and how many of the calls under way are
	said    []byte // by their answers
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
	s.took, s.wrong, s.strange = max(s.took, o.took), cmp.Or(s.wrong, o.wrong), cmp.Or(s.strange, o.strange)
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
	return (&client{requests: requests, each: bytes.Count(requests[0], []byte(`"tenant"`)), want: []byte(want)}).open(addr, n)
}

// open opens n connections.
func (c *client) open(addr string, n int) *client {
	for i := range n {
		conn := &connection{fd: must(dial(addr)), buf: make([]byte, 4<<10), next: i * len(c.requests) / n}
		if c.conns = append(c.conns, conn); c.hello != nil {
			must(unix.Write(conn.fd, c.hello))
		}
	}
	c.saturate(time.Millisecond) // an idle connection would be closed after two seconds
	return c
}

// dial returns a connected, non-blocking socket.
func dial(addr string) (fd int, err error) {
	conn, err := (&net.Dialer{}).DialContext(context.Background(), "tcp", addr)
	if err != nil {
		return 0, err
	}
	defer conn.Close()
	raw, err := conn.(*net.TCPConn).SyscallConn()
	if err != nil {
		return 0, err
	}
	var dup error
	err = raw.Control(func(old uintptr) { fd, dup = unix.FcntlInt(old, unix.F_DUPFD_CLOEXEC, 0) })
	return fd, errors.Join(err, dup)
}

func (c *client) close() {
	for _, conn := range c.conns {
		_ = unix.Close(conn.fd)
	}
}

// saturate has each connection send its next request as soon as it is answered.
func (c *client) saturate(d time.Duration) (all sample) {
	var running sync.WaitGroup
	samples, errs := make([]sample, threads), make([]error, threads)
	each := len(c.conns) / threads
	for i := range threads {
		running.Go(func() {
			t := &thread{client: c, conns: c.conns[i*each : (i+1)*each]}
			errs[i] = t.run(d, 0)
			samples[i] = t.sample
		})
	}
	running.Wait()
	check(errors.Join(errs...))
	for i := range samples {
		all.join(&samples[i])
	}
	c.total.add(all.tally)
	return all
}

// pace sends perSecond requests a second, burst at a time and at even intervals,
// independent of the answers.
func (c *client) pace(perSecond float64, burst int, d time.Duration) sample {
	t := &thread{client: c, conns: c.conns, burst: burst}
	check(t.run(d, time.Duration(float64(burst)/perSecond*float64(time.Second))))
	c.total.add(t.sample.tally)
	return t.sample
}

// thread is one thread of the system and its connections.
type thread struct {
	client *client
	conns  []*connection
	sample sample
	burst  int           // requests that are due at once
	free   []*connection // idle connections, longest first; only if a rate is kept
	late   []time.Time   // due times of requests that no connection is free for
}

// run sends requests for d: bursts of them at intervals of every, or with 0 each
// connection the next when one is answered.
func (t *thread) run(d, every time.Duration) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	poll, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return err
	}
	defer unix.Close(poll)
	for i, c := range t.conns {
		if err := unix.EpollCtl(poll, unix.EPOLL_CTL_ADD, c.fd, &unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(i)}); err != nil {
			return err
		}
	}
	began := time.Now()
	defer func() { t.sample.took = time.Since(began) }()
	if every > 0 {
		return t.paced(poll, began, began.Add(d), every)
	}
	for _, c := range t.conns {
		if err := t.send(c, began); err != nil {
			return err
		}
	}
	return t.loop(poll, began.Add(d), nil)
}

// ticker tells when requests are due. Go's timers are not finer than a millisecond
// while nothing else happens, so it is a timer of the system.
type ticker struct {
	fd    int
	every time.Duration
	next  time.Time
}

func (t *thread) paced(poll int, began, end time.Time, every time.Duration) error {
	fd, err := unix.TimerfdCreate(unix.CLOCK_MONOTONIC, unix.TFD_NONBLOCK|unix.TFD_CLOEXEC)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	step := unix.NsecToTimespec(every.Nanoseconds())
	if err := unix.TimerfdSettime(fd, 0, &unix.ItimerSpec{Interval: step, Value: step}, nil); err != nil {
		return err
	}
	if err := unix.EpollCtl(poll, unix.EPOLL_CTL_ADD, fd, &unix.EpollEvent{Events: unix.EPOLLIN, Fd: -1}); err != nil {
		return err
	}
	t.free = append(t.free, t.conns...)
	return t.loop(poll, end, &ticker{fd: fd, every: every, next: began.Add(every)})
}

// loop serves connections until end, and then until every request is answered. With a
// ticker, all that is due before end is sent, however late this thread gets to run.
func (t *thread) loop(poll int, end time.Time, tick *ticker) error {
	events := make([]unix.EpollEvent, len(t.conns)+1)
	for {
		n, err := unix.EpollWait(poll, events, int(answerTimeout/time.Millisecond))
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err == nil && n == 0 {
			err = fmt.Errorf("no answer in %v", answerTimeout)
		}
		if err != nil {
			return err
		}
		now := time.Now()
		for _, e := range events[:n] {
			if e.Fd < 0 {
				err = t.sendDue(tick, end)
			} else {
				err = t.receive(t.conns[e.Fd], now, tick == nil && now.Before(end))
			}
			if err != nil {
				return err
			}
		}
		idle := len(t.late) == 0 && !slices.ContainsFunc(t.conns, func(c *connection) bool { return c.pending })
		if !now.Before(end) && idle && (tick == nil || !tick.next.Before(end)) {
			return nil
		}
	}
}

func (t *thread) sendDue(tick *ticker, end time.Time) error {
	var expired [8]byte
	if _, err := unix.Read(tick.fd, expired[:]); err != nil {
		return nil //nolint:nilerr // it was read already
	}
	for now := time.Now(); !tick.next.After(now); tick.next = tick.next.Add(tick.every) {
		for range t.burst {
			switch {
			case !tick.next.Before(end): // it is over
			case len(t.free) == 0:
				t.late = append(t.late, tick.next)
			default:
				c := t.free[0]
				t.free = t.free[1:]
				if err := t.send(c, tick.next); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// receive reads what has arrived. A complete answer frees the connection, or has it
// send again.
func (t *thread) receive(c *connection, now time.Time, again bool) error {
	if c.got == len(c.buf) {
		c.buf = append(c.buf, make([]byte, len(c.buf))...)
	}
	n, err := unix.Read(c.fd, c.buf[c.got:])
	if err == unix.EAGAIN || err == unix.EINTR {
		return nil
	}
	if err == nil && n == 0 {
		err = io.ErrUnexpectedEOF
	}
	if err != nil {
		return err
	}
	c.got += n
	if t.client.hello != nil {
		if answered, err := c.frames(t.client.each); err != nil || !answered {
			return err
		}
	} else if size, ok := answerSize(c.buf[:c.got]); !ok || c.got < size {
		return nil
	}
	t.count(c, now)
	if again {
		return t.send(c, now)
	}
	if len(t.late) > 0 {
		due := t.late[0]
		t.late = t.late[1:]
		return t.send(c, due)
	}
	t.free = append(t.free, c)
	return nil
}

func (t *thread) count(c *connection, now time.Time) {
	s, answer := &t.sample, c.buf[:c.got]
	decided, strange := s.count(answer, t.client.each, t.client.decides)
	s.strange = cmp.Or(s.strange, strange)
	if bytes.Count(answer, t.client.want) < decided {
		s.wrongs, s.wrong = s.wrongs+1, string(answer)
	}
	s.answers, s.waits = s.answers+1, append(s.waits, now.Sub(c.due))
	if t.client.follow != nil {
		c.follows = t.client.follow(c.follows[:0], answer)
	}
	c.got, c.pending = 0, false
}

func (t *thread) send(c *connection, due time.Time) error {
	request := c.follows
	if len(request) == 0 {
		request = t.client.requests[c.next]
		c.next = (c.next + 1) % len(t.client.requests)
	}
	if t.client.hello != nil {
		request = c.streams(request)
	}
	if t.client.rewrite != nil {
		c.own = append(c.own[:0], request...)
		t.client.rewrite(c.own)
		request = c.own
	}
	c.due, c.pending = due, true
	n, err := unix.Write(c.fd, request)
	if err == nil && n < len(request) {
		err = unix.EMSGSIZE
	}
	return err
}

// answerSize is the length of an answer, once its header is complete.
func answerSize(b []byte) (int, bool) {
	head := bytes.Index(b, []byte("\r\n\r\n"))
	if head < 0 {
		return 0, false
	}
	const field = "\r\nContent-Length: "
	at := bytes.Index(b[:head], []byte(field))
	if at < 0 {
		return len(b), bytes.HasSuffix(b, []byte("\r\n0\r\n\r\n")) // chunked
	}
	size := 0
	for _, digit := range b[at+len(field) : head] {
		if digit < '0' || digit > '9' {
			break
		}
		size = size*10 + int(digit-'0')
	}
	return head + 4 + size, true
}
