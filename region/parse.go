package region

import (
	"cmp"
	_ "embed"
	"fmt"
	"net/textproto"
	"slices"
	"strconv"
	"strings"

	"github.com/regiond/regiond/quota"
)

//go:embed default.yaml
var defaultSource []byte

// Parse reads a topology.yaml. The name is only for messages. The error is an
// *Invalid. Warnings come in the order of the file, and only with a Topology.
func Parse(name string, src []byte) (*Topology, []Problem, error) {
	return parseWith(name, src, (*Topology).Warnings)
}

func parseWith(name string, src []byte, warn func(*Topology) []quota.FieldError) (*Topology, []Problem, error) {
	invalid := func(ps ...Problem) (*Topology, []Problem, error) {
		return nil, nil, &Invalid{File: name, Problems: inOrder(ps)}
	}
	t := &Topology{}
	d, shape := decode(src, t, false)
	if shape != nil {
		return invalid(*shape)
	}
	t.complete(d)
	mistakes := d.wrong
	for _, m := range t.Validate() {
		if !d.said[m.Pointer] {
			mistakes = append(mistakes, Problem{Place: d.nearest(m.Pointer), Detail: m.Detail})
		}
	}
	if len(mistakes) > 0 {
		return invalid(mistakes...)
	}
	var warnings []Problem
	for _, w := range warn(t) {
		warnings = append(warnings, Problem{Place: d.nearest(w.Pointer), Detail: w.Detail})
	}
	return t, inOrder(warnings), nil
}

// Default is what runs without a file: one region `local` on loopback that
// keeps its counts in memory. It is parsed anew each time, so the caller owns it.
func Default() *Topology {
	t, _, err := Parse("default.yaml", defaultSource)
	if err != nil {
		panic(fmt.Sprintf("region: the embedded topology is broken: %v", err))
	}
	return t
}

// complete sets what absent fields mean, and brings lists and names into the form
// that the rest of the program wants.
func (t *Topology) complete(d *decoder) {
	if !d.has("/max_unknown") {
		t.MaxUnknown = DefaultMaxUnknown
	}
	if !d.has("/max_values") {
		t.MaxValues = DefaultMaxValues
	}
	t.ShareTop = t.ShareTop || !d.has("/share_top")
	t.Headers.Format = cmp.Or(t.Headers.Format, quota.Draft11)
	t.Headers.XReset = cmp.Or(t.Headers.XReset, quota.ResetDelta)
	for i := range t.Regions {
		g, at := &t.Regions[i], item("/regions", i)
		if !d.has(at + "/weight") {
			g.Weight = DefaultWeight
		}
		g.Admin = cmp.Or(g.Admin, DefaultAdmin)
		g.Redis.Embedded = g.Redis.Embedded || !d.has(at+"/redis")
		g.NATS.Embedded = g.NATS.Embedded || !d.has(at+"/nats")
		if !g.Redis.Embedded {
			g.Redis.Mode = cmp.Or(g.Redis.Mode, quota.RedisStandalone)
		}
		if g.Gossip != nil && g.NATS.Embedded && g.NATS.Gateway == "" {
			g.NATS.Gateway = portAfter(g.Gossip.Advertise)
		}
	}
	for i := range t.Policies {
		p, at := &t.Policies[i], item("/policies", i)
		if !d.has(at + "/enforce_share") {
			p.EnforcePercent = -1
		}
		for j := range p.Limits {
			completeLimit(d, &p.Limits[j], item(at+"/limits", j))
			if p.Limits[j].MaxOvershoot > 0 && !d.has(at+"/on_store_loss") {
				p.OnStoreLoss = quota.FailClosed // the others suspend the bound
			}
		}
	}
	for i := range t.RLS.Domains {
		if o := &t.RLS.Domains[i]; o.MaxOvershoot > 0 && !d.has(o.At+"/on_store_loss") {
			o.OnStoreLoss = quota.FailClosed
		}
	}
	if f := t.ForwardAuth; f != nil {
		f.Missing = cmp.Or(f.Missing, quota.MissingDeny)
		if !d.has("/forward_auth/ipv6_prefix") {
			f.IPv6Prefix = quota.DefaultIPv6Prefix
		}
		f.Tenant.Header = textproto.CanonicalMIMEHeaderKey(f.Tenant.Header)
		for i := range f.Dimensions { // as net/http looks them up
			f.Dimensions[i].Header = textproto.CanonicalMIMEHeaderKey(f.Dimensions[i].Header)
		}
		for i := range f.Routes {
			if r := &f.Routes[i]; !r.Skip && !d.has(item("/forward_auth/routes", i)+"/cost") {
				r.Cost = 1
			}
		}
	}
}

// completeLimit refuses what quota takes for absent, and sorts the dimensions,
// whose names it checks while they are where the file has them.
func completeLimit(d *decoder, l *quota.Limit, at string) {
	if d.has(at+"/burst") && l.Burst == 0 && !d.said[at+"/burst"] {
		d.note(d.nearest(at+"/burst"), "must be between 1 and %d, is 0", quota.MaxUnits)
	}
	var by []string
	for i, name := range l.By {
		pointer := item(at+"/by", i)
		if err := quota.ValidName(name); err != nil && !d.said[pointer] {
			d.note(d.nearest(pointer), "%v", err)
		} else if slices.Contains(by, name) {
			d.note(d.nearest(pointer), "dimension %q is duplicated", name)
		} else if err == nil {
			by = append(by, name)
		}
	}
	slices.Sort(by)
	l.By = by
}

// Place is where in a file something is.
type Place struct {
	Line   int `json:"line"`   // from 1
	Column int `json:"column"` // from 1, in characters
	// Pointer is RFC 6901: "/policies/0/limits/1/per", "" for the whole file.
	// When it names something absent, line and column are those of the nearest
	// thing around it that exists.
	Pointer string `json:"pointer"`
}

// Problem is a mistake, which the schema forbids, or a warning of something that
// is allowed and probably not meant.
type Problem struct {
	Place
	File   string `json:"file,omitempty"` // of a domain; "" for the topology itself
	Detail string `json:"detail"`         // what the rule is and what was found
}

// Text gives the problem as one line:
// "topology.yaml:12:9: /regions/0/weight: must be …".
func (p Problem) Text(file string) string {
	file = cmp.Or(p.File, file)
	at := file + ": "
	if p.Line > 0 { // else it is about the whole
		at = fmt.Sprintf("%s:%d:%d: ", file, p.Line, p.Column)
	}
	if p.Pointer != "" {
		at += visible(p.Pointer) + ": "
	}
	return at + p.Detail
}

// inOrder sorts problems as a reader of the file meets them.
func inOrder(ps []Problem) []Problem {
	slices.SortStableFunc(ps, func(a, b Problem) int {
		return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column), cmp.Compare(a.Pointer, b.Pointer))
	})
	return ps
}

// Invalid is the error for a file that is no topology: the first mistake of shape
// alone (no YAML, an unknown or duplicate field, a wrong type), or else every
// mistake of value in the order of the file.
type Invalid struct {
	File     string    `json:"file"`
	Problems []Problem `json:"mistakes"` // at least one
}

// Error implements error with one line for each mistake.
func (e *Invalid) Error() string {
	lines := make([]string, len(e.Problems))
	for i, p := range e.Problems {
		lines[i] = p.Text(e.File)
	}
	return strings.Join(lines, "\n")
}

// visible keeps a key with line breaks in it from breaking a line of the log.
func visible(s string) string {
	quoted := strconv.QuoteToGraphic(s)
	return strings.ReplaceAll(quoted[1:len(quoted)-1], `\"`, `"`)
}

// under appends one segment to a pointer.
func under(pointer, segment string) string {
	return pointer + "/" + strings.NewReplacer("~", "~0", "/", "~1").Replace(segment)
}

// item appends an index to a pointer.
func item(pointer string, i int) string { return pointer + "/" + strconv.Itoa(i) }
