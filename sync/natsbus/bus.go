package natsbus

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/url"
	"slices"
	"sync"
	"time"

	meshsync "github.com/regiond/regiond/sync"
)

// Bus is a sync.Bus over core NATS. All its methods are safe for concurrent use;
// those that publish or show something never wait for the network.
type Bus struct {
	opts    Options
	server  *Embedded
	metrics *metrics
	queue   *queue
	inbox   *inbox
	state   state
	gaps    chan struct{} // holds one

	discovered []string // Run's own: servers that others told of
}

var _ meshsync.Bus = (*Bus)(nil)

// New makes a Bus that does nothing yet. Its error names every option that is
// wrong.
func New(opts Options) (*Bus, error) {
	if err := opts.validate(); err != nil {
		return nil, fmt.Errorf("natsbus: %w", err)
	}
	m, err := newMetrics(opts.Meter)
	if err != nil {
		return nil, fmt.Errorf("natsbus: make instruments: %w", err)
	}
	b := &Bus{opts: opts, server: opts.Server, metrics: m, queue: newQueue(), inbox: newInbox(m), gaps: make(chan struct{}, 1)}
	b.state.logger, b.state.complained = opts.Logger, make(map[string]bool)
	return b, nil
}

// Publish hands a message over and returns at once. Its errors are ErrDisconnected,
// ErrFull, ErrTooLarge and ErrSubject; each is counted. Neither data nor header is kept.
func (b *Bus) Publish(subject string, data []byte, header ...meshsync.Field) error {
	err := b.queue.push(subject, data, header...)
	b.metrics.publish(err)
	return err
}

// Messages delivers what others publish on usage and beat subjects, and what is
// asked of our region. It is never closed.
func (b *Bus) Messages() <-chan meshsync.Message { return b.inbox.out }

// Gaps has something in it after a connection was made. It holds at most one.
func (b *Bus) Gaps() <-chan struct{} { return b.gaps }

// Drops has something in it after a message that had arrived was dropped. It holds at
// most one.
func (b *Bus) Drops() <-chan struct{} { return b.inbox.drops }

// Connected tells whether there is a connection whose subscriptions are in place.
func (b *Bus) Connected() bool { return b.state.read().Connected }

// Status is what there is to show of the connection.
func (b *Bus) Status() Status { return b.state.read() }

// Run keeps a connection until ctx is done, whatever NATS does, and then sends
// what is queued, for half a second at most. It is called once. It returns an
// error only when it could not begin.
func (b *Bus) Run(ctx context.Context) error {
	unregister, err := b.metrics.observe(b.Connected)
	if err != nil {
		return fmt.Errorf("natsbus: observe: %w", err)
	}
	defer unregister()
	reading, stop := context.WithCancel(context.Background())
	var reader sync.WaitGroup
	reader.Go(func() { b.inbox.run(reading) })
	defer reader.Wait()
	defer stop() // after the last session: nats.go writes to the inbox until then

	for attempt := 1; b.pause(ctx, attempt); attempt++ {
		s, err := b.connect(ctx)
		if err != nil {
			b.disconnected(ctx, err)
			continue
		}
		attempt = 0
		b.connected(s)
		err = s.run(ctx)
		b.disconnected(ctx, err)
	}
	return nil
}

// connected opens the queue, and says that messages have been missed.
func (b *Bus) connected(s *session) {
	b.queue.start(int(s.nc.MaxPayload()))
	b.metrics.connection()
	b.state.connected(b.shown(s))
	if most := s.nc.MaxPayload(); most < payload {
		b.opts.Logger.Warn("bus: the NATS server takes small messages only, so large ones are sent in pieces; set its max_payload to 1MB, its default",
			"max_payload", most, "needed", payload)
	}
	if b.server == nil {
		b.discovered = s.nc.DiscoveredServers()
	}
	signal(b.gaps)
}

func (b *Bus) shown(s *session) string {
	if b.server != nil {
		return "in process"
	}
	return withoutCredentials(s.nc.ConnectedUrl())
}

// disconnected drops what is queued. err is nil when we left.
func (b *Bus) disconnected(ctx context.Context, err error) {
	b.queue.stop()
	b.metrics.drop(dropDisconnected, b.queue.clear())
	if ctx.Err() != nil {
		err = nil // whatever it was, we ended it
	}
	b.state.disconnected(err)
}

// pause waits before an attempt and tells whether to make it. The first is at
// once, the one after a loss soon, and the rest less than a second apart: with the
// time that an unreachable server takes to be given up, one that is back is found
// within two. The spread keeps processes from returning as one.
func (b *Bus) pause(ctx context.Context, attempt int) bool {
	if b.server != nil {
		// Before it is ready there is nothing to try.
		select {
		case <-b.server.Ready():
		case <-ctx.Done():
			return false
		}
	}
	timer := time.NewTimer(delay(attempt, !b.state.read().Since.IsZero()))
	defer timer.Stop()
	select {
	case <-timer.C:
		return ctx.Err() == nil
	case <-ctx.Done():
		return false
	}
}

// delay before an attempt; again means that it is not the first of this process.
func delay(attempt int, again bool) time.Duration {
	switch {
	case !again:
		return 0
	case attempt <= 1:
		return 100*time.Millisecond + rand.N(400*time.Millisecond)
	default:
		return 200*time.Millisecond + rand.N(600*time.Millisecond)
	}
}

// subjects are the three of the contract.
func (b *Bus) subjects() []string {
	return []string{
		meshsync.SubjectUsage + "*",
		meshsync.SubjectHeartbeat + "*",
		meshsync.SubjectSnapshot + b.opts.Region,
	}
}

// servers are the configured URLs and then those that were discovered, with the
// user of the first: nats.go tells of hosts only.
func (b *Bus) servers() []string {
	servers := slices.Clone(b.opts.URLs)
	for _, text := range b.discovered[:min(len(b.discovered), maxDiscovered)] {
		u, err := parseURL(text)
		first, firstErr := parseURL(servers[0])
		if errors.Join(err, firstErr) != nil {
			continue
		}
		u = &url.URL{Scheme: u.Scheme, User: first.User, Host: u.Host}
		if !slices.Contains(servers, u.String()) {
			servers = append(servers, u.String())
		}
	}
	return servers
}
