package faultproxy

import (
	"bufio"
	"net"
	"sync"
	"time"
)

// verdict is what becomes of one reply.
type verdict struct {
	due    time.Time // when it leaves for the client
	struck bool
	kind   Kind // when struck
}

// delivery is bytes on their way to the client.
type delivery struct {
	due   time.Time
	bytes []byte
}

// link is one client's connection and the proxy's own to the server.
//
//	client ─▶ requests ─▶ server          names of commands ─▶ expected
//	client ◀─ deliver ◀─ queue ◀─ replies ◀─ server
type link struct {
	client, server net.Conn
	queue          chan delivery // written and closed by replies
	done           chan struct{} // closed by close
	closing        sync.Once

	mu       sync.Mutex
	expected []string // commands sent and not yet answered, oldest first
	scripts  bool     // some were
	last     string   // of them
	fussy    bool     // falls silent at the next that decides nothing
	silent   bool     // nothing reaches the client any more
}

// queued is how many replies may be under way to a slow or delayed client before
// the link stops reading from the server.
const queued = 4096

func newLink(client, server net.Conn) *link {
	return &link{
		client: client,
		server: server,
		queue:  make(chan delivery, queued),
		done:   make(chan struct{}),
	}
}

// close ends the link at once, from any goroutine.
func (l *link) close() {
	l.closing.Do(func() {
		close(l.done)
		_ = l.client.Close() // an error here says only that it has ended already
		_ = l.server.Close()
	})
}

// run carries the link until either side ends it and every goroutine of it is over.
func (l *link) run(judge func(command string) verdict) {
	var wg sync.WaitGroup
	wg.Go(l.requests)
	wg.Go(func() { l.replies(judge) })
	wg.Go(l.deliver)
	wg.Wait()
}

// requests carries commands to the server until the client hangs up.
func (l *link) requests() {
	defer l.close()
	r := bufio.NewReader(l.client)
	for {
		raw, command, err := readCommand(r)
		if err != nil {
			return
		}
		if command != "" {
			// Before the server can answer, or replies would not find it.
			l.expect(command)
		}
		if _, err := l.server.Write(raw); err != nil {
			return
		}
	}
}

// replies reads from the server until it hangs up or a fault ends the link. What
// is in the queue by then is still delivered, and then the client is hung up on.
func (l *link) replies(judge func(command string) verdict) {
	defer close(l.queue)
	r := bufio.NewReader(l.server)
	for {
		raw, push, err := readReply(r)
		v := verdict{due: time.Now()}
		if err == nil && !push {
			v = judge(l.answered())
		}
		last := err != nil
		if v.struck {
			switch v.kind {
			case Swallow:
				l.silence()
			case Drop:
				raw, last = nil, true
			case Cut:
				raw, last = raw[:1], true
			case Stray:
				raw = append([]byte(strayReply), raw...)
			}
		}
		if !l.isSilent() && !l.enqueue(delivery{due: v.due, bytes: raw}) || last {
			return
		}
	}
}

func (l *link) enqueue(d delivery) bool {
	select {
	case l.queue <- d:
		return true
	case <-l.done:
		return false
	}
}

// deliver writes what replies has queued, each piece when it is due.
func (l *link) deliver() {
	defer l.close()
	for d := range l.queue {
		wait := time.NewTimer(time.Until(d.due))
		select {
		case <-wait.C:
		case <-l.done:
			wait.Stop()
			return
		}
		if _, err := l.client.Write(d.bytes); err != nil {
			return
		}
	}
}

func (l *link) expect(command string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.expected = append(l.expected, command)
	l.scripts = l.scripts || isScript(command)
	l.silent = l.silent || l.fussy && !decides(command, l.last)
	l.last = command
}

func (l *link) silence() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.silent = true
}

func (l *link) isSilent() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.silent
}

// fall silences the link if it is one of some connections.
func (l *link) fall(which Connections) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.silent = l.silent || which == All || which == Scripts && l.scripts
	l.fussy = which == Others
}

// answered returns the command that the next reply answers, "" when the server
// speaks without being asked, as when it has too many clients.
func (l *link) answered() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.expected) == 0 {
		return ""
	}
	command := l.expected[0]
	l.expected = l.expected[1:]
	return command
}
