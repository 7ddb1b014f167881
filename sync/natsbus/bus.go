// Package natsbus is the sync.Bus over core NATS, and the NATS server that a small
// deployment runs inside the process.
//
//	Publish ─▶ queue ─▶ nats.go ─▶ NATS ─ ─ gateways ─ ─▶ peers
//	(never waits)                                            │
//	Messages ◀─ inbox (bounded) ◀─ nats.go ◀─────────────────┘
//
// Beside what sync.Bus promises: what could not be sent while there was a connection is dropped,
// never kept for later, since the next message has newer state. A lost connection is retried forever,
// and counts as connected once its subscriptions are in place. A gap between the servers of two regions
// is beyond our connection and not seen here; sequence numbers in the messages show it.
package natsbus

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nkeys"

	"github.com/regiond/regiond/internal/base/loglimit"
	"github.com/regiond/regiond/internal/base/signal"
	meshsync "github.com/regiond/regiond/sync"
)

// What Publish may return. In every case the message is gone.
var (
	// ErrDisconnected means that there is no connection to NATS.
	ErrDisconnected = errors.New("not connected to NATS")
	// ErrFull means that the socket is slower than we publish.
	ErrFull = errors.New("too much is waiting for the connection to NATS")
)

// Bus is a sync.Bus over core NATS. All its methods are safe for concurrent use; none but
// Run waits for the network.
type Bus struct {
	opts    Options
	metrics *metrics

	queue  chan meshsync.Message // to the socket
	queued atomic.Int64          // bytes in queue
	limit  atomic.Int64          // bytes of a message that the server takes; 0: not connected

	arrived       chan *nats.Msg // written by nats.go
	subscriptions atomic.Pointer[[]*nats.Subscription]
	messages      chan meshsync.Message // unbuffered: what was received is gone from the inbox
	gaps          chan struct{}         // holds one

	mu         sync.Mutex
	status     Status
	complaints *loglimit.Rate // lines about errors, each at most once an hour or connection
}

var _ meshsync.Bus = (*Bus)(nil)

// Status is the state of the connection.
type Status struct {
	Connected bool
	URL       string    // of the server, without credentials; "in process" for our own; "" while there is none
	Since     time.Time // when the connection was made or lost; zero before Run
	LastError string    // the last error since the connection was made, or that prevents it
}

// New makes a Bus that does nothing before Run.
func New(opts Options) (*Bus, error) {
	if err := opts.validate(); err != nil {
		return nil, fmt.Errorf("natsbus: %w", err)
	}
	b := &Bus{
		opts:       opts,
		queue:      make(chan meshsync.Message, QueueMessages),
		arrived:    make(chan *nats.Msg, InboxMessages),
		messages:   make(chan meshsync.Message),
		gaps:       make(chan struct{}, 1),
		complaints: loglimit.NewRate(1, time.Hour),
	}
	var err error
	if b.metrics, err = newMetrics(opts.Meter, b.Connected); err != nil {
		return nil, fmt.Errorf("natsbus: make instruments: %w", err)
	}
	return b, nil
}

// Publish queues a message and returns at once. Its errors are ErrDisconnected, ErrFull
// and sync.ErrTooLarge; each is counted. Neither data nor header is kept.
func (b *Bus) Publish(subject string, data []byte, header ...meshsync.Field) error {
	m := meshsync.Message{Subject: subject, Data: data, Header: header}
	limit, n := b.limit.Load(), size(m)
	switch {
	case limit == 0:
		b.metrics.drop(dropDisconnected, 1)
		return ErrDisconnected
	case n-int64(len(subject)) > limit:
		b.metrics.drop(dropTooLarge, 1)
		return meshsync.ErrTooLarge
	}
	if b.queued.Add(n) <= QueueBytes {
		m.Data, m.Header = bytes.Clone(data), slices.Clone(header)
		select {
		case b.queue <- m:
			b.metrics.published.Add(1)
			return nil
		default:
		}
	}
	b.queued.Add(-n)
	b.metrics.drop(dropFull, 1)
	return ErrFull
}

// Limit implements sync.Bus; it is 0 while there is no connection.
func (b *Bus) Limit() int { return int(b.limit.Load()) }

// Messages implements sync.Bus. It is never closed.
func (b *Bus) Messages() <-chan meshsync.Message { return b.messages }

// Gaps implements sync.Bus.
func (b *Bus) Gaps() <-chan struct{} { return b.gaps }

// Connected reports whether there is a connection whose subscriptions are in place.
func (b *Bus) Connected() bool { return b.limit.Load() > 0 }

// Status returns the state of the connection.
func (b *Bus) Status() Status {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.status
}

// Run keeps a connection until ctx is done, and then sends what is queued, for half a
// second unless the socket blocks. It is called once, and its error is always nil.
func (b *Bus) Run(ctx context.Context) error {
	if b.opts.Server != nil {
		select {
		case <-b.opts.Server.Ready():
		case <-ctx.Done():
			return nil
		}
	}
	reading, stop := context.WithCancel(context.Background())
	var reader sync.WaitGroup
	reader.Go(func() { b.receive(reading) })
	defer reader.Wait()
	defer stop() // after the last connection: nats.go writes to the inbox until then

	// nats.go reconnects, but for good it closes a connection whose server reports an
	// error that nats.go does not know.
	for ctx.Err() == nil {
		b.connection(ctx)
		select {
		case <-time.After(reconnectWait + rand.N(reconnectJitter)):
		case <-ctx.Done():
		}
	}
	return nil
}

// connection publishes what is queued until ctx is done or nats.go gives up.
func (b *Bus) connection(ctx context.Context) {
	subscribed, closed := make(chan struct{}), make(chan struct{})
	up := func(nc *nats.Conn) {
		<-subscribed
		b.connected(nc)
	}
	opts := []nats.Option{
		nats.Name(b.opts.Name),
		nats.Timeout(dialTimeout),
		nats.RetryOnFailedConnect(true),
		nats.MaxReconnects(-1),
		nats.IgnoreAuthErrorAbort(), // until somebody corrects the credentials
		nats.ReconnectWait(reconnectWait),
		nats.ReconnectJitter(reconnectJitter, reconnectJitter),
		nats.ReconnectBufSize(-1), // nothing is kept for later
		nats.PingInterval(pingInterval),
		nats.MaxPingsOutstanding(maxPings),
		nats.FlusherTimeout(writeTimeout),
		nats.ReconnectOnFlusherError(),
		nats.NoEcho(),
		nats.ConnectHandler(up),
		nats.ReconnectHandler(up),
		nats.DisconnectErrHandler(b.disconnected),
		nats.ReconnectErrHandler(b.disconnected),
		nats.ClosedHandler(func(*nats.Conn) { close(closed) }),
		nats.ErrorHandler(b.failed),
	}
	if b.opts.Server != nil {
		opts = append(opts, nats.InProcessServer(b.opts.Server.server))
	}
	if b.opts.Creds != nil {
		opts = append(opts, nats.UserJWT(b.jwt, b.sign))
	}
	if b.opts.Username != "" {
		opts = append(opts, nats.UserInfoHandler(b.login))
	}
	if b.opts.TLS != nil {
		opts = append(opts, nats.Secure(b.opts.TLS))
	}
	nc, err := nats.Connect(strings.Join(b.opts.URLs, ","), opts...)
	if err != nil {
		b.disconnected(nil, err)
		return
	}
	var subs []*nats.Subscription
	for _, subject := range meshsync.Subscriptions(b.opts.Region) {
		// One channel for all subscriptions keeps the order of the connection.
		sub, err := nc.ChanSubscribe(subject, b.arrived)
		if err != nil {
			break // closed meanwhile
		}
		subs = append(subs, sub)
	}
	b.subscriptions.Store(&subs)
	close(subscribed)
	for {
		select {
		case m := <-b.queue:
			b.send(nc, m)
		case <-ctx.Done():
			b.leave(nc)
			<-closed
			return
		case <-closed:
			return
		}
	}
}

// jwt and sign are nats.UserCredentials without its reading of the file, which would wait for the writer of a FIFO for ever.
func (b *Bus) jwt() (string, error) {
	creds, err := b.opts.Creds()
	if err != nil {
		return "", err
	}
	return nkeys.ParseDecoratedJWT(creds)
}

func (b *Bus) sign(nonce []byte) ([]byte, error) {
	creds, err := b.opts.Creds()
	if err != nil {
		return nil, err
	}
	key, err := nkeys.ParseDecoratedNKey(creds)
	if err != nil {
		return nil, err
	}
	defer key.Wipe()
	return key.Sign(nonce)
}

// login is asked at every connection, so that a replaced password is used by the next.
func (b *Bus) login() (name, password string) {
	password, err := b.opts.Password()
	if err != nil {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.complaints.Warn(b.opts.Logger, time.Now(), err.Error(), "bus: the password of "+b.opts.Username+" at NATS cannot be read",
			"error", err)
	}
	return b.opts.Username, password
}

// send is the one that may wait for the socket, for writeTimeout.
func (b *Bus) send(nc *nats.Conn, m meshsync.Message) {
	b.queued.Add(-size(m))
	msg := &nats.Msg{Subject: m.Subject, Data: m.Data}
	if len(m.Header) > 0 && nc.HeadersSupported() { // the message matters, not its header
		msg.Header = headerOf(m.Header)
	}
	err := nc.PublishMsg(msg)
	switch {
	case err == nil:
	case errors.Is(err, nats.ErrMaxPayload):
		b.metrics.drop(dropTooLarge, 1)
	case errors.Is(err, nats.ErrReconnectBufExceeded), errors.Is(err, nats.ErrConnectionClosed):
		b.metrics.drop(dropDisconnected, 1)
	default: // part of it may be in the socket
		b.metrics.drop(dropWrite, 1)
		b.complain(err)
		_ = nc.ForceReconnect() // unless it was closed meanwhile
	}
}

func (b *Bus) leave(nc *nats.Conn) {
	b.limit.Store(0)
	ctx, cancel := context.WithTimeout(context.Background(), flushTimeout)
	defer cancel()
	for len(b.queue) > 0 && ctx.Err() == nil {
		b.send(nc, <-b.queue)
	}
	if err := nc.FlushWithContext(ctx); err != nil {
		b.opts.Logger.Debug("bus: the last messages may not have been sent", "error", err)
	}
	nc.Close()
	b.discard(dropWrite)
}

func (b *Bus) discard(reason string) {
	for {
		select {
		case m := <-b.queue:
			b.queued.Add(-size(m))
			b.metrics.drop(reason, 1)
		default:
			return
		}
	}
}

// connected opens the queue once the server knows the subscriptions.
func (b *Bus) connected(nc *nats.Conn) {
	ctx, cancel := context.WithTimeout(context.Background(), dialTimeout)
	defer cancel()
	if nc.FlushWithContext(ctx) != nil {
		_ = nc.ForceReconnect() // unless it is lost already
		return
	}
	shown := "in process"
	if u, err := url.Parse(nc.ConnectedUrl()); err == nil && b.opts.Server == nil {
		shown = (&url.URL{Scheme: u.Scheme, Host: u.Host}).String() // without user, password or token
	}
	b.discard(dropDisconnected) // of the connection before
	b.limit.Store(min(nc.MaxPayload(), MaxMessage))
	b.metrics.opened.Add(1)
	b.opts.Logger.Info("bus: connected to NATS", "url", shown)
	if most := nc.MaxPayload(); most < payload {
		b.opts.Logger.Warn("bus: the NATS server takes small messages only, so large ones are sent in pieces; set its max_payload to 1MB, its default",
			"max_payload", most, "needed", payload)
	}
	b.mu.Lock()
	b.status = Status{Connected: true, URL: shown, Since: time.Now()}
	b.complaints.Forget()
	b.mu.Unlock()
	signal.Send(b.gaps)
}

// disconnected is called when a connection is lost or closed, and for each attempt that
// failed.
func (b *Bus) disconnected(nc *nats.Conn, err error) {
	b.limit.Store(0)
	b.discard(dropDisconnected)
	if err == nil {
		err = nc.LastError() // nil when we closed it
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.status.Connected || b.status.Since.IsZero() {
		b.complaints.Forget()
		b.status = Status{Since: time.Now(), LastError: b.status.LastError}
		if err != nil {
			b.opts.Logger.Warn("bus: not connected to NATS; trying until it is back", "error", err)
		}
	}
	if err != nil {
		b.status.LastError = err.Error()
	}
}

// failed is called by nats.go for errors that have no caller.
func (b *Bus) failed(_ *nats.Conn, _ *nats.Subscription, err error) {
	switch {
	case errors.Is(err, nats.ErrSlowConsumer):
		return // receive counts what was dropped
	case errors.Is(err, nats.ErrPermissionViolation):
		b.metrics.drop(dropRefused, 1)
	}
	b.complain(err)
}

func (b *Bus) complain(err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.status.LastError = err.Error()
	if b.status.Connected {
		b.complaints.Warn(b.opts.Logger, time.Now(), err.Error(), "bus: NATS reports an error", "error", err)
	}
}
