package natsbus

import (
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"strings"
	"time"

	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/metric/noop"

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
	// maxComplaints is how many different errors of one connection are logged.
	maxComplaints = 16
)

// Options are what a Bus needs: where NATS is (URLs or Server, not both) and our names.
type Options struct {
	// URLs of NATS servers, as nats://host:port or tls://host:port; any of them will do.
	// Servers that they announce are tried too.
	URLs []string
	// Server is used instead of URLs, without a socket. Its maker runs it.
	Server *Embedded
	// Region is ours: the subject of the snapshot requests that we answer.
	Region string
	// Name is what NATS shows for the connection; "" means regiond/<Region>. With
	// several processes in a region: regiond/<region>/<instance>.
	Name string
	// CredsFile has the NATS credentials, read at every connection; "" means none.
	CredsFile string
	// TLS for the connection; nil means as the URL says, with the system's roots.
	TLS *tls.Config
	// Logger gets one record for every change of the connection; nil means no log.
	Logger *slog.Logger
	// Meter makes the instruments; nil means there are none.
	Meter metric.Meter
}

// validate fills in the defaults and returns everything that is wrong.
func (o *Options) validate() error {
	var errs []error
	if (len(o.URLs) == 0) == (o.Server == nil) {
		errs = append(errs, errors.New("option URLs or option Server must be given, and not both"))
	}
	for _, u := range o.URLs {
		if err := validateURL(u); err != nil {
			errs = append(errs, err)
		}
	}
	if !validSubject(o.Region) || strings.Contains(o.Region, ".") {
		errs = append(errs, fmt.Errorf("option Region must be one word of a NATS subject, is %q", o.Region))
	}
	if o.Name == "" {
		o.Name = "regiond/" + o.Region
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Meter == nil {
		o.Meter = noop.Meter{}
	}
	return errors.Join(errs...)
}

// validateURL accepts what both nats.go and we understand. The text of a URL may
// hold a password, so no error shows more than its host.
func validateURL(text string) error {
	u, err := parseURL(text)
	switch {
	case err != nil:
		return errors.New("option URLs: one of them cannot be read; write nats://host:port or tls://host:port")
	case u.Scheme != "nats" && u.Scheme != "tls":
		return fmt.Errorf("option URLs: %q at %s is not nats or tls", u.Scheme, u.Host)
	case u.Hostname() == "":
		return errors.New("option URLs: one of them has no host; write nats://host:port or tls://host:port")
	}
	return nil
}

// parseURL reads a URL as nats.go does: without a scheme it is nats://.
func parseURL(text string) (*url.URL, error) {
	if !strings.Contains(text, "://") {
		text = "nats://" + text
	}
	return url.Parse(text)
}

// validSubject reports whether a message can be published there: servers deliver what is
// published to a wildcard.
func validSubject(s string) bool {
	for word := range strings.SplitSeq(s, ".") {
		if word == "" {
			return false
		}
	}
	return !strings.ContainsFunc(s, func(r rune) bool {
		return r <= ' ' || r == '*' || r == '>' || r >= 0x7f
	})
}
