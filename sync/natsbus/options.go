package natsbus

import (
	"cmp"
	"crypto/tls"
	"errors"
	"log/slog"
	"time"

	"go.opentelemetry.io/otel/metric"

	meshsync "github.com/regiond/regiond/sync"
	"github.com/regiond/regiond/sync/wire"
)

// The bounds of a Bus. They are no options: none depends on a deployment.
const (
	// MaxMessage is the most bytes of a message, and the default of NATS itself. Publish
	// takes no more than the connected server, which may allow less.
	MaxMessage = 1 << 20
	// payload is what a server should take: the largest message, with its header.
	payload = wire.MaxMessage + meshsync.MaxFields*meshsync.MaxFieldBytes
	// QueueMessages and QueueBytes are how much waits for the socket: ten seconds of ticks,
	// or a whole snapshot.
	QueueMessages = 1024
	QueueBytes    = 8 << 20
	// InboxMessages and InboxBytes are how much waits for the reader of Messages.
	InboxMessages = 8192
	InboxBytes    = 16 << 20

	// pingInterval and maxPings find a silent server within three seconds.
	pingInterval = time.Second
	maxPings     = 2
	// dialTimeout is for the connection, and again for the first bytes on it.
	dialTimeout = time.Second
	// writeTimeout is how long the socket may refuse bytes before the connection is given
	// up. Half a megabyte, the largest message, has to fit through.
	writeTimeout = time.Second
	// reconnectWait and reconnectJitter, at random, are the time between two attempts: with
	// dialTimeout a server that is back is found within two seconds. The jitter keeps
	// processes from returning as one.
	reconnectWait   = 200 * time.Millisecond
	reconnectJitter = 600 * time.Millisecond
	// flushTimeout is for what is queued when the process ends.
	flushTimeout = 500 * time.Millisecond
)

// Options are what a Bus needs: where NATS is (URLs or Server, not both) and our names.
type Options struct {
	// URLs of NATS servers, as nats://host:port or tls://host:port, checked by region; any
	// of them will do. Servers that they announce are tried too.
	URLs []string
	// Server is used instead of URLs, without a socket. Its maker runs it.
	Server *Embedded
	// Region is ours: it decides the subjects that we read.
	Region string
	// Name is what NATS shows for the connection; "" means regiond/<Region>. With
	// several processes in a region: regiond/<region>/<instance>.
	Name string
	// Creds returns the content of a file of NATS credentials, and is asked at every connection; nil means none.
	Creds func() ([]byte, error)
	// Username and Password, which is asked for at every connection, are used without
	// Creds; "" means none. Password is called by one goroutine at a time.
	Username string
	Password func() (string, error)
	// TLS for the connection; nil means by the scheme of the URL, with the system's roots.
	TLS *tls.Config
	// Logger gets one record for every change of the connection; nil means no log.
	Logger *slog.Logger
	// Meter makes the instruments; nil means there are none.
	Meter metric.Meter
}

func (o *Options) validate() error {
	if (len(o.URLs) == 0) == (o.Server == nil) {
		return errors.New("option URLs or option Server must be given, and not both")
	}
	o.Name = cmp.Or(o.Name, "regiond/"+o.Region)
	o.Logger = cmp.Or(o.Logger, slog.New(slog.DiscardHandler))
	return nil
}
