package judge

import (
	"fmt"
	"slices"

	"github.com/regiond/regiond/test/chaos/traffic"
)

// most is how many objections of a kind are spelled out.
const most = 5

// objections collects an oracle's objections: the first few, and their number.
type objections struct {
	what  string
	count int
	first []string
}

func (o *objections) add(format string, args ...any) {
	o.count++
	if o.count <= most {
		o.first = append(o.first, fmt.Sprintf(o.what+": "+format, args...))
	}
}

func (o *objections) all() []string {
	if o.count > most {
		return append(o.first, fmt.Sprintf("%s: %d objections in all", o.what, o.count))
	}
	return o.first
}

// Excuse reports whether a request was sent to a region that could not answer.
type Excuse func(r *traffic.Record) bool

// Answered insists that each request has an answer: 200 if it was admitted, 429 if it was
// denied, and 503 with a time to retry if it was turned away or its policy is closed. An answer that comes after traffic.Timeout is none.
func Answered(records []traffic.Record, excused Excuse) []string {
	o := objections{what: "answered"}
	for i := range records {
		r := &records[i]
		if r.Bare {
			continue // what it could not answer is the machine's doing
		}
		want := 429
		switch {
		case r.Answer.Allowed:
			want = 200
		case r.Answer.Basis == "shed", r.Answer.Basis == "closed":
			want = 503
		}
		switch {
		case r.Err == "" && r.Status == want && (want != 503 || r.Answer.RetryAfterMS > 0):
		case excused(r):
		case r.Err != "":
			o.add("%s of %s to %s at %v: none within %v: %s", r.Class, r.Tenant, r.Region, r.Call, r.Took(), r.Err)
		default:
			o.add("%s of %s to %s at %v: status %d, allowed %v, basis %s, retry after %d ms", r.Class, r.Tenant, r.Region, r.Call, r.Status, r.Answer.Allowed, r.Answer.Basis, r.Answer.RetryAfterMS)
		}
	}
	return o.all()
}

// words are the bases and reasons that go with each mode.
func words(mode string) (bases, reasons []string) {
	seen, shut := []string{"exact", "estimate", "cached"}, []string{"bound_closed", "bound_burnt"}
	switch mode {
	case "global":
		return seen, append(shut, "")
	case "partitioned", "stale":
		return seen, append(shut, "peer_silent", "one_way", "views_differ", "process_paused")
	case "joining":
		return seen, append(shut, "joining")
	case "local":
		return []string{"local"}, []string{"redis_timeout", "redis_down", "redis_refused", "breaker_open"}
	default:
		return nil, nil
	}
}

// Labelled checks that mode, basis and reason of every answer are consistent: what is not
// global has a reason, what was decided without Redis is local, or closed where a bound has to
// hold, and what Redis is too busy for is shed as overloaded in any other mode.
func Labelled(records []traffic.Record) []string {
	o := objections{what: "labelled"}
	for i := range records {
		r := &records[i]
		if r.Bare || r.Err != "" {
			continue
		}
		bases, reasons := words(r.Answer.Mode)
		if r.Answer.Basis == "shed" && !r.Answer.Allowed && bases != nil && r.Answer.Mode != "local" {
			bases, reasons = []string{"shed"}, []string{"overloaded"}
		}
		if bounded(r) && r.Answer.Mode == "local" && !r.Answer.Allowed {
			bases = []string{"closed"}
		}
		if !slices.Contains(bases, r.Answer.Basis) || !slices.Contains(reasons, r.Answer.Reason) {
			o.add("%s at %v: mode %q, basis %q, reason %q", r.Region, r.Return, r.Answer.Mode, r.Answer.Basis, r.Answer.Reason)
		}
	}
	return o.all()
}

// Modest insists that no request of class quiet is denied, whatever is down: each region
// asks for less than its part of the limit. Overloaded says when one may be turned away.
func Modest(records []traffic.Record, excused Excuse) []string {
	o := objections{what: "modest"}
	for i := range records {
		r := &records[i]
		if r.Class == traffic.Quiet && r.Err == "" && !r.Answer.Allowed && r.Answer.Basis != "shed" && !excused(r) {
			o.add("%s denies %s at %v in mode %q because of %q, %d remain", r.Region, r.Tenant, r.Return, r.Answer.Mode, r.Answer.Reason, r.Answer.Remaining)
		}
	}
	return o.all()
}
