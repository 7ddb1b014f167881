package httpapi

import (
	"log/slog"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"

	"github.com/regiond/regiond/quota"
)

// logsPerSecond bounds the lines that a flood of denials can write, per process
// and kind of line.
const logsPerSecond = 10

// sampler lets logsPerSecond lines through and counts the others. The next line
// that passes reports how many were suppressed.
type sampler struct {
	limit      *rate.Limiter
	suppressed atomic.Int64
}

func (s *sampler) pass(now time.Time) (suppressed int64, ok bool) {
	if !s.limit.AllowN(now, 1) {
		s.suppressed.Add(1)
		return 0, false
	}
	return s.suppressed.Swap(0), true
}

// logDecision writes a line for a denial, enforced or observed. Ids are in the
// log alone, never in a metric.
func (c *call) logDecision(d *quota.Decision, dims quota.Dimensions) {
	if d.Allowed && !d.WouldDeny {
		return
	}
	suppressed, ok := c.denials.pass(c.start)
	if !ok {
		return
	}
	message := "denied"
	if d.Allowed {
		message = "would deny"
	}
	attrs := []slog.Attr{
		slog.String("tenant", d.Tenant), slog.String("policy", d.Policy), slog.Int64("cost", d.Cost),
		slog.Any("violated", d.Violated()), slog.Duration("retry_after", d.RetryAfter()),
		slog.String("basis", d.Basis.String()), slog.String("mode", d.Mode.String()),
	}
	if d.Reason != quota.ReasonNone {
		attrs = append(attrs, slog.String("reason", d.Reason.String()))
	}
	for _, dim := range dims {
		attrs = append(attrs, slog.String("dim."+dim.Name, dim.Value))
	}
	c.log(message, suppressed, attrs)
}

// logRefusal writes a line for a call without a decision. detail is our own text
// and contains nothing secret.
func (c *call) logRefusal(why, detail string) {
	if suppressed, ok := c.refusals.pass(c.start); ok {
		c.log("refused", suppressed, []slog.Attr{slog.String("why", why), slog.String("detail", detail)})
	}
}

// logReset is not sampled: it changed what a tenant may still use.
func (c *call) logReset(tenant string) {
	c.log("usage reset", 0, []slog.Attr{slog.String("tenant", tenant)})
}

func (c *call) log(message string, suppressed int64, attrs []slog.Attr) {
	attrs = append(attrs, slog.String("route", c.pattern()), slog.String("peer", c.r.RemoteAddr))
	if c.caller != "" {
		attrs = append(attrs, slog.String("caller", c.caller))
	}
	if suppressed > 0 {
		attrs = append(attrs, slog.Int64("suppressed", suppressed))
	}
	c.Logger.LogAttrs(c.ctx, slog.LevelInfo, message, attrs...)
}
