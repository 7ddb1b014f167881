package telemetry

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	mathrand "math/rand/v2"
	"os"
	"syscall"
	"time"

	"go.opentelemetry.io/otel/metric"
	"golang.org/x/time/rate"

	"github.com/regiond/regiond/internal/base/instruments"
	"github.com/regiond/regiond/internal/base/loglimit"
	"github.com/regiond/regiond/quota"
)

// DenialOptions are what one process writes of its denials, and where.
type DenialOptions struct {
	Path   string  // of a file, "-" for standard output, "" for no log
	Tenant string  // off, hash or raw: what it shows of a tenant's id
	Sample float64 // the proportion of denials that are written, 0 to 1
	Rate   int64   // lines per second, at most, and as many at once after a quiet one
}

// Validate returns the first option that is out of bounds, named as a flag.
func (o *DenialOptions) Validate() error {
	switch {
	case o.Path == "":
		return nil
	case o.Tenant != tenantOff && o.Tenant != tenantHash && o.Tenant != tenantRaw:
		return fmt.Errorf("--denial-log-tenant is off, hash or raw, not %q", o.Tenant)
	case !(o.Sample >= 0 && o.Sample <= 1): // NaN is neither
		return errors.New("--denial-log-sample is between 0 and 1")
	case o.Rate < 1:
		return errors.New("--denial-log-rate is at least 1")
	}
	return nil
}

// What is missing in a denial log, and why: the labels of its metric.
const (
	droppedRate   = "rate"   // more than the lines per second
	droppedQueue  = "queue"  // the file does not keep up
	droppedFailed = "failed" // the file cannot be written
)

// DenialLog writes a line for each denial that is answered, within its bounds. No answer waits for it.
//
//	httpapi, grpcapi ──Write── sample, rate ──▶ AsyncWriter ──▶ file
type DenialLog struct {
	region  string
	tenant  func(tenant string) string // nil shows nothing
	sample  float64
	limit   *rate.Limiter
	out     *AsyncWriter
	file    io.WriteCloser
	log     *slog.Logger
	dropped *instruments.Counter
	now     func() time.Time
	random  func() float64 // in [0,1)

	torn   bool // the last line is incomplete; the writer's
	failed loglimit.Fault
}

// OpenDenialLog opens the file; nil, if there is to be none. secret keys the hash of tenants.
func OpenDenialLog(o *DenialOptions, region string, secret []byte, m metric.Meter, log *slog.Logger) (*DenialLog, error) {
	if o.Path == "" {
		return nil, nil
	}
	file := os.Stdout
	if o.Path != "-" {
		var err error
		// A pipe is opened at once or not at all: regiond would wait for its reader and not start.
		file, err = os.OpenFile(o.Path, os.O_APPEND|os.O_CREATE|os.O_WRONLY|syscall.O_NONBLOCK, 0o600)
		if errors.Is(err, syscall.ENXIO) {
			return nil, fmt.Errorf("--denial-log: nobody reads the pipe %s; start its reader first", o.Path)
		} else if err != nil {
			return nil, fmt.Errorf("--denial-log: %w", err)
		}
	}
	l, err := newDenialLog(o, region, secret, file, m, log)
	switch {
	case err == nil:
		l.torn = tornFile(o.Path)
	case o.Path != "-":
		err = errors.Join(err, file.Close())
	}
	return l, err
}

// tornFile reports whether a file ends within a line, as after a disk was full. Of what is no file, or may not be
// read, it is not known.
func tornFile(path string) bool {
	info, err := os.Stat(path)
	if err != nil || !info.Mode().IsRegular() || info.Size() == 0 {
		return false
	}
	file, err := os.Open(path)
	if err != nil {
		return false
	}
	defer file.Close()
	var last [1]byte
	_, err = file.ReadAt(last[:], info.Size()-1)
	return err == nil && last[0] != '\n'
}

func newDenialLog(
	o *DenialOptions, region string, secret []byte, file io.WriteCloser, m metric.Meter, log *slog.Logger,
) (*DenialLog, error) {
	i := instruments.On(m)
	dropped := i.CounterBy("regiond.denial_log.dropped", "{line}", "Lines that the denial log lacks, by reason.",
		"reason", droppedRate, droppedQueue, droppedFailed)
	if err := i.Err(); err != nil {
		return nil, err
	}
	if secret == nil { // hashes differ between processes and lives, and nobody can test guesses
		secret = make([]byte, 32)
		_, _ = rand.Read(secret) // never fails
	}
	l := &DenialLog{
		region: region, tenant: tenantText(o.Tenant, secret), sample: o.Sample, limit: rate.NewLimiter(rate.Limit(o.Rate), int(o.Rate)),
		file: file, log: log, dropped: dropped, now: time.Now, random: mathrand.Float64,
	}
	l.out = NewAsyncWriter(lineWriter{l})
	return l, nil
}

// Close closes the file. Standard output is the process's.
func (l *DenialLog) Close() error {
	if l == nil || l.file == os.Stdout {
		return nil
	}
	return l.file.Close()
}

// denialLine is a line of the log. docs/observe.md explains its members.
type denialLine struct {
	Time   time.Time        `json:"time"`
	ID     quota.DecisionID `json:"id"`
	Region string           `json:"region"`
	Policy string           `json:"policy"`
	*deniedLimit
	Tenant       string `json:"tenant,omitempty"`
	Cost         int64  `json:"cost"`
	Mode         string `json:"mode"`
	Reason       string `json:"reason,omitempty"`
	RetryAfterMS int64  `json:"retry_after_ms"`
}

// deniedLimit is what a line says of the limit that refused.
type deniedLimit struct {
	Limit   string `json:"limit"`
	Ceiling int64  `json:"ceiling"`
	Used    int64  `json:"used"`
	Peers   int64  `json:"peers"`
}

// Write adds a line about a denial, or counts it as dropped. It waits for nothing.
func (l *DenialLog) Write(d *quota.Decision) {
	if l.sample < 1 && l.random() >= l.sample {
		return
	}
	now := l.now()
	if !l.limit.AllowN(now, 1) {
		l.dropped.Add(1, "reason", droppedRate)
		return
	}
	line := denialLine{Time: now.UTC(), ID: d.ID, Region: l.region, Policy: d.Policy, Cost: d.Cost, Mode: d.Mode.String(), Reason: d.Reason.String()}
	if l.tenant != nil {
		line.Tenant = l.tenant(d.Tenant)
	}
	retry := d.RetryAfter()
	if s := d.DeniedBy(); s == nil {
		retry = max(retry, time.Second) // as in the answer
	} else {
		line.deniedLimit = &deniedLimit{Limit: s.Limit.Name, Ceiling: s.Ceiling, Used: s.Used()}
		if s.Limit.Scope == quota.ScopeGlobal {
			line.Peers = max(0, s.Limit.Capacity()-s.Ceiling)
		}
	}
	line.RetryAfterMS = (retry + time.Millisecond - 1).Milliseconds()
	text, err := json.Marshal(line)
	if err != nil { // no member can fail
		return
	}
	if !l.out.offer(append(text, '\n')) {
		l.dropped.Add(1, "reason", droppedQueue)
	}
}

// lineWriter writes lines to the file of a DenialLog.
type lineWriter struct{ *DenialLog }

// Write never fails. A line that was written in part, as to a full disk, is ended before the next.
func (w lineWriter) Write(line []byte) (int, error) {
	text := line
	if w.torn {
		text = append([]byte{'\n'}, line...)
	}
	n, err := w.file.Write(text)
	if err == nil {
		w.torn = false
		return len(line), nil
	}
	w.torn = w.torn && n == 0 || n > 0 && text[n-1] != '\n'
	w.dropped.Add(1, "reason", droppedFailed)
	if w.failed.Begins() {
		w.log.Error("the denial log cannot be written, which is logged once; see regiond_denial_log_dropped_total", "error", err)
	}
	return len(line), nil
}

// Run writes until ctx ends, and then what is left.
func (l *DenialLog) Run(ctx context.Context) error {
	go l.out.Run(l.log)
	<-ctx.Done()
	l.out.Close()
	return nil
}
