//go:build linux

package daemon

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"runtime"
	"strconv"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// rawClient asks over connections that stay open, with requests that were written
// down before. It exists because net/http's client costs more than what is measured:
// here an answer costs one read and one write.
//
//	thread ─ epoll ─┬─ connection: write, read, write, …
//	                └─ clock: how many requests are due, when a rate is kept
type rawClient struct {
	requests [][]byte
	want     []byte // what each answer must contain
	conns    []*rawConn
	// change makes another request of one before it is sent; nil for none. It is called
	// by several threads, and then each connection has a request of its own.
	change func(request []byte)
}

const (
	// rawConns are usually open at once, and rawThreads share them: one for each processor
	// of the machine that the goals are stated for.
	rawConns   = 64
	rawThreads = 2
)

type rawConn struct {
	fd    int
	buf   []byte
	got   int
	next  int       // the request that it sends next
	own   []byte    // what change is called with
	due   time.Time // of the request under way
	under bool      // whether there is one
}

// rawCame is what a turn came to.
type rawCame struct {
	answers int
	took    time.Duration
	waits   []time.Duration // from the moment at which each was due; only when a rate is kept
	wrong   string          // an answer that was not as it should be
	wrongs  int
}

func (c *rawCame) join(o *rawCame) {
	c.answers, c.wrongs, c.waits = c.answers+o.answers, c.wrongs+o.wrongs, append(c.waits, o.waits...)
	c.took = max(c.took, o.took)
	if o.wrong != "" {
		c.wrong = o.wrong
	}
}

// rawPost writes a request down.
func rawPost(path, body string) []byte {
	return fmt.Appendf(nil, "POST %s HTTP/1.1\r\nHost: bench\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s",
		path, len(body), body)
}

// rawChecks are the requests of so many tenants, whose ids begin with a prefix.
func rawChecks(prefix, policy string, tenants int) [][]byte {
	requests := make([][]byte, tenants)
	for i := range requests {
		requests[i] = rawPost("/v1/check", rawCheck(prefix, policy, i))
	}
	return requests
}

func rawCheck(prefix, policy string, i int) string {
	return fmt.Sprintf(`{"tenant":"%s%07d","policy":%q}`, prefix, i, policy)
}

func newRawClient(tb testing.TB, addr string, conns int, requests [][]byte, want string) *rawClient {
	tb.Helper()
	c := &rawClient{requests: requests, want: []byte(want)}
	for i := range conns {
		fd, err := rawDial(addr)
		if err != nil {
			tb.Fatal(err)
		}
		c.conns = append(c.conns, &rawConn{fd: fd, buf: make([]byte, 64<<10), next: i * len(requests) / conns})
	}
	c.saturate(tb, time.Millisecond) // a connection that says nothing is closed after two seconds
	return c
}

// rawDial returns a connected socket that does not block.
func rawDial(addr string) (fd int, err error) {
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
	if err == nil {
		err = dup
	}
	return fd, err
}

func (c *rawClient) close() {
	for _, conn := range c.conns {
		_ = unix.Close(conn.fd)
	}
}

// saturate has each connection ask again as soon as it was answered.
func (c *rawClient) saturate(tb testing.TB, long time.Duration) rawCame {
	tb.Helper()
	came, err := c.ask(long)
	if err != nil {
		tb.Fatal(err)
	}
	return came
}

func (c *rawClient) ask(long time.Duration) (all rawCame, err error) {
	var threads sync.WaitGroup
	came, errs := make([]rawCame, rawThreads), make([]error, rawThreads)
	each := len(c.conns) / rawThreads
	for i := range rawThreads {
		threads.Go(func() {
			t := &rawThread{client: c, conns: c.conns[i*each : (i+1)*each]}
			errs[i] = t.run(long, 0)
			came[i] = t.came
		})
	}
	threads.Wait()
	for i := range came {
		all.join(&came[i])
	}
	return all, errors.Join(errs...)
}

// keep asks so many times a second, at even distances, whoever has been answered.
func (c *rawClient) keep(tb testing.TB, perSecond int, long time.Duration) rawCame {
	tb.Helper()
	t := &rawThread{client: c, conns: c.conns}
	if err := t.run(long, perSecond); err != nil {
		tb.Fatal(err)
	}
	return t.came
}

// rawThread is one thread of the system and its connections.
type rawThread struct {
	client *rawClient
	conns  []*rawConn
	came   rawCame
	free   []*rawConn  // those without a request, longest first, when a rate is kept
	late   []time.Time // when the requests were due that no connection is free for
}

const rawPatience = 10 * time.Second

func (t *rawThread) run(long time.Duration, perSecond int) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	poll, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return err
	}
	defer unix.Close(poll)
	for i, c := range t.conns {
		e := unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(i)}
		if err := unix.EpollCtl(poll, unix.EPOLL_CTL_ADD, c.fd, &e); err != nil {
			return err
		}
	}
	began := time.Now()
	end := began.Add(long)
	if perSecond == 0 {
		for _, c := range t.conns {
			if err := t.ask(c, began); err != nil {
				return err
			}
		}
		err = t.loop(poll, end, nil)
	} else {
		err = t.pace(poll, began, end, perSecond)
	}
	t.came.took = time.Since(began)
	return err
}

// loop serves connections until end, and then until all are answered. With a clock,
// all that was due before end is asked for, however late this thread gets to run.
func (t *rawThread) loop(poll int, end time.Time, clock *rawClock) error {
	events := make([]unix.EpollEvent, len(t.conns)+1)
	for {
		n, err := unix.EpollWait(poll, events, int(rawPatience/time.Millisecond))
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err == nil && n == 0 {
			err = fmt.Errorf("no answer in %v", rawPatience)
		}
		if err != nil {
			return err
		}
		now := time.Now()
		for _, e := range events[:n] {
			if e.Fd < 0 {
				err = t.due(clock, end)
			} else {
				err = t.read(t.conns[e.Fd], now, clock == nil && now.Before(end))
			}
			if err != nil {
				return err
			}
		}
		if !now.Before(end) && t.idle() && (clock == nil || !clock.next.Before(end)) {
			return nil
		}
	}
}

func (t *rawThread) idle() bool {
	for _, c := range t.conns {
		if c.under {
			return false
		}
	}
	return len(t.late) == 0
}

// read takes what has come. When the answer is whole the connection asks again, or is free.
func (t *rawThread) read(c *rawConn, now time.Time, again bool) error {
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
	size, ok := rawSize(c.buf[:c.got])
	if !ok || c.got < size {
		return nil
	}
	t.answered(c, now)
	if again {
		return t.ask(c, now)
	}
	if len(t.late) > 0 {
		due := t.late[0]
		t.late = t.late[1:]
		return t.ask(c, due)
	}
	t.free = append(t.free, c)
	return nil
}

func (t *rawThread) answered(c *rawConn, now time.Time) {
	t.came.answers++
	if !bytes.Contains(c.buf[:c.got], t.client.want) {
		t.came.wrongs, t.came.wrong = t.came.wrongs+1, string(c.buf[:c.got])
	}
	if t.came.waits != nil {
		t.came.waits = append(t.came.waits, now.Sub(c.due))
	}
	c.got, c.under = 0, false
}

func (t *rawThread) ask(c *rawConn, due time.Time) error {
	request := t.client.requests[c.next]
	if c.next++; c.next == len(t.client.requests) {
		c.next = 0
	}
	if t.client.change != nil {
		c.own = append(c.own[:0], request...)
		t.client.change(c.own)
		request = c.own
	}
	c.due, c.under = due, true
	n, err := unix.Write(c.fd, request)
	if err == nil && n < len(request) {
		err = unix.EMSGSIZE
	}
	return err
}

// rawSize is how long an answer is, once its header is there.
func rawSize(b []byte) (int, bool) {
	head := bytes.Index(b, []byte("\r\n\r\n"))
	if head < 0 {
		return 0, false
	}
	const field = "\r\nContent-Length: "
	at := bytes.Index(b[:head], []byte(field))
	if at < 0 {
		return len(b), bytes.HasSuffix(b, []byte("\r\n0\r\n\r\n")) // in chunks
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

// rawClock says when requests are due.
type rawClock struct {
	fd    int
	every time.Duration
	next  time.Time
}

// pace asks at the beats of a clock of the system, since Go's own is not finer than
// a millisecond while nothing else happens.
func (t *rawThread) pace(poll int, began, end time.Time, perSecond int) error {
	every := time.Second / time.Duration(perSecond)
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
	t.came.waits = make([]time.Duration, 0, int(end.Sub(began)/every)+1)
	return t.loop(poll, end, &rawClock{fd: fd, every: every, next: began.Add(every)})
}

// due lets go of what is due by now.
func (t *rawThread) due(clock *rawClock, end time.Time) error {
	var beats [8]byte
	if _, err := unix.Read(clock.fd, beats[:]); err != nil {
		return nil //nolint:nilerr // it was read already
	}
	for now := time.Now(); !clock.next.After(now); clock.next = clock.next.Add(clock.every) {
		switch {
		case !clock.next.Before(end): // it is over
		case len(t.free) == 0:
			t.late = append(t.late, clock.next)
		default:
			c := t.free[0]
			t.free = t.free[1:]
			if err := t.ask(c, clock.next); err != nil {
				return err
			}
		}
	}
	return nil
}

// processTime is the processor time that a process has used, to the nanosecond.
func processTime(tb testing.TB, pid int) time.Duration {
	tb.Helper()
	const schedulers = 2 // CPUCLOCK_SCHED of the kernel's clock ids
	var t unix.Timespec
	if err := unix.ClockGettime(int32(^pid)<<3|schedulers, &t); err != nil {
		tb.Fatalf("processor time of process %s: %v", strconv.Itoa(pid), err)
	}
	return time.Duration(t.Nano())
}
