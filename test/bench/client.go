//go:build linux

package main

import (
	"bytes"
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
	want     []byte // what each answer must contain
	conns    []*connection
	// rewrite changes a request before it is sent; nil for none. Several threads call it,
	// and then each connection has a copy of its own.
	rewrite func(request []byte)
}

const (
	// conns are open at once, shared by threads: one thread for each processor of the
	// machine that the goals are stated for.
	conns   = 64
	threads = 2
	// answerTimeout is how long the server may take for an answer.
	answerTimeout = 10 * time.Second
)

type connection struct {
	fd      int
	buf     []byte
	got     int
	next    int       // index of the next request
	own     []byte    // copy of the request that rewrite changes
	due     time.Time // of the request under way
	pending bool
}

// sample is the result of one turn of a load.
type sample struct {
	answers int
	took    time.Duration
	waits   []time.Duration // from when each was due; only if a rate is kept
	wrongs  int
	wrong   string // one of the wrong answers
}

func (s *sample) add(o *sample) {
	s.answers, s.wrongs, s.waits = s.answers+o.answers, s.wrongs+o.wrongs, append(s.waits, o.waits...)
	s.took = max(s.took, o.took)
	if o.wrong != "" {
		s.wrong = o.wrong
	}
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
	c := &client{requests: requests, want: []byte(want)}
	for i := range n {
		c.conns = append(c.conns, &connection{fd: must(dial(addr)), buf: make([]byte, 64<<10), next: i * len(requests) / n})
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
		all.add(&samples[i])
	}
	return all
}

// pace sends perSecond requests a second at even intervals, independent of the answers.
func (c *client) pace(perSecond int, d time.Duration) sample {
	t := &thread{client: c, conns: c.conns}
	check(t.run(d, perSecond))
	return t.sample
}

// thread is one thread of the system and its connections.
type thread struct {
	client *client
	conns  []*connection
	sample sample
	free   []*connection // idle connections, longest first; only if a rate is kept
	late   []time.Time   // due times of requests that no connection is free for
}

func (t *thread) run(d time.Duration, perSecond int) error {
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
	if perSecond > 0 {
		return t.paced(poll, began, began.Add(d), time.Second/time.Duration(perSecond))
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
	t.sample.waits = make([]time.Duration, 0, int(end.Sub(began)/every)+1)
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
	return nil
}

// receive reads what has arrived. A complete answer frees the connection, or has it
// send again.
func (t *thread) receive(c *connection, now time.Time, again bool) error {
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
	if size, ok := answerSize(c.buf[:c.got]); !ok || c.got < size {
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
	t.sample.answers++
	if !bytes.Contains(c.buf[:c.got], t.client.want) {
		t.sample.wrongs, t.sample.wrong = t.sample.wrongs+1, string(c.buf[:c.got])
	}
	if t.sample.waits != nil {
		t.sample.waits = append(t.sample.waits, now.Sub(c.due))
	}
	c.got, c.pending = 0, false
}

func (t *thread) send(c *connection, due time.Time) error {
	request := t.client.requests[c.next]
	if c.next++; c.next == len(t.client.requests) {
		c.next = 0
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
