package sim

import (
	"fmt"
	"strings"
	"time"

	"github.com/cespare/xxhash/v2"

	"github.com/regiond/regiond/quota"
)

// traceKept is how many of the last entries are printed for a violation.
const traceKept = 40

// trace is a hash over all that happened, and the latest of it in words.
type trace struct {
	sum    uint64 // of all
	latest [traceKept]entry
	count  int
}

// entry is one line of the latest, kept as values: most are never written out.
type entry struct {
	at   time.Duration
	p    *process
	msg  *message
	text string // of a fault, or a change of view
	d    quota.Decision
}

const traceBasis = 14695981039346656037

func newTrace() trace { return trace{sum: traceBasis} }

// mixed adds a number to a hash (FNV-1a's step, on words).
func mixed(sum, v uint64) uint64 {
	sum = (sum ^ v) * 1099511628211
	return sum ^ sum>>29
}

// mix adds a number.
func (t *trace) mix(v uint64) { t.sum = mixed(t.sum, v) }

func (t *trace) keep(e entry) {
	t.latest[t.count%traceKept] = e
	t.count++
}

func (t *trace) message(at time.Duration, m *message, to *process) {
	t.mix(uint64(at))
	t.mix(uint64(to.number))
	t.mix(m.hash)
	if m.usage != nil {
		t.keep(entry{at: at, p: to, msg: m})
	}
}

func (t *trace) answer(at time.Duration, p *process, d *quota.Decision) {
	t.mix(uint64(at))
	t.mix(uint64(p.number))
	bits := uint64(d.Mode)<<8 | uint64(d.Basis)<<16 | uint64(d.Reason)<<24
	if d.Allowed {
		bits |= 1
	}
	t.mix(bits)
	for i := range d.Limits {
		t.mix(uint64(d.Limits[i].Ceiling))
		t.mix(uint64(d.Limits[i].Remaining))
		t.mix(uint64(d.Limits[i].RetryAfter))
	}
	t.keep(entry{at: at, p: p, d: *d})
}

// note adds something in words: a fault, a change of view.
func (t *trace) note(at time.Duration, p *process, text string) {
	t.mix(uint64(at))
	t.mix(xxhash.Sum64String(text))
	t.keep(entry{at: at, p: p, text: text})
}

// last is the latest entries, oldest first, one a line.
func (t *trace) last() string {
	var b strings.Builder
	for i := max(0, t.count-traceKept); i < t.count; i++ {
		fmt.Fprintf(&b, "  %s\n", t.latest[i%traceKept])
	}
	return b.String()
}

// String is the entry as one line.
func (e entry) String() string {
	who := ""
	if e.p != nil {
		who = e.p.self.Region + "/" + e.p.self.Instance
	}
	switch {
	case e.text != "":
		return fmt.Sprintf("%12v %-8s %s", e.at, who, e.text)
	case e.msg != nil:
		return fmt.Sprintf("%12v %-8s receives %s number %d of %q: %v", e.at, who, e.msg.from.self.Region+"/"+e.msg.from.self.Instance, e.msg.usage.Seq, e.msg.usage.Origin, e.msg.usage.Groups)
	default:
		ceiling, remaining := int64(-1), int64(-1)
		if len(e.d.Limits) > 0 {
			ceiling, remaining = e.d.Limits[0].Ceiling, e.d.Limits[0].Remaining
		}
		return fmt.Sprintf("%12v %-8s %s cost %d: allowed %t, %v %v %v, ceiling %d, remaining %d", e.at, who, e.d.Tenant, e.d.Cost, e.d.Allowed, e.d.Mode, e.d.Basis, e.d.Reason, ceiling, remaining)
	}
}
