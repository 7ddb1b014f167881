package region

import (
	"cmp"
	_ "embed"
	"fmt"
	"maps"
	"net/textproto"
	"slices"
	"strconv"
	"strings"

	"github.com/regiond/regiond/internal/base/files"
	"github.com/regiond/regiond/quota"
)

//go:embed default.yaml
var defaultSource []byte

// Parse reads a topology.yaml. The name is only for messages. The Source knows the places of what is to be said of a Topology. The
// error is an *Invalid, and comes alone.
func Parse(name string, src []byte) (*Topology, *Source, error) {
	t := &Topology{
		MaxUnknown: DefaultMaxUnknown, MaxValues: DefaultMaxValues, ShareTop: true,
		Headers: quota.Headers{Format: quota.Draft11, XReset: quota.ResetDelta},
	}
	s := decode(src, t, false)
	t.complete(s)
	if wrong := append(s.wrong, s.placed(t.Validate())...); len(wrong) > 0 {
		return nil, nil, &Invalid{File: name, Problems: inOrder(wrong)}
	}
	return t, s, nil
}

// Load reads a topology file, and returns what warn, if any, says of it in the order of the file. The error is an *Invalid or of
// reading.
func Load(name string, warn func(*Topology) []quota.FieldError) (*Topology, []Problem, error) {
	src, err := files.Read(name)
	if err != nil {
		return nil, nil, err
	}
	t, s, err := Parse(name, src)
	if err != nil || warn == nil {
		return t, nil, err
	}
	return t, s.Problems(warn(t)), nil
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
func (t *Topology) complete(s *Source) {
	for i := range t.Regions {
		g, at := &t.Regions[i], quota.Item("/regions", i)
		if !s.Has(at + "/weight") {
			g.Weight = DefaultWeight
		}
		g.Admin = cmp.Or(g.Admin, DefaultAdmin)
		g.Redis.Embedded = g.Redis.Embedded || !s.Has(at+"/redis")
		g.NATS.Embedded = g.NATS.Embedded || !s.Has(at+"/nats")
		if !g.Redis.Embedded {
			g.Redis.Mode = cmp.Or(g.Redis.Mode, quota.RedisStandalone)
		}
		if g.Gossip != nil && g.NATS.Embedded && g.NATS.Gateway == "" {
			g.NATS.Gateway = portAfter(g.Gossip.Advertise)
		}
	}
	for i := range t.Policies {
		p, at := &t.Policies[i], quota.Item("/policies", i)
		if !s.Has(at + "/enforce_share") {
			p.EnforcePercent = -1
		}
		if p.Reserves() && !s.Has(at+"/max_ttl") {
			p.MaxTTL = quota.DefaultMaxTTL
		}
		if p.Reserves() && !s.Has(at+"/max_hold") {
			p.MaxHold = 100
		}
		for j := range p.Limits {
			completeLimit(s, &p.Limits[j], quota.Item(at+"/limits", j))
			if p.Limits[j].Counts == quota.CountsTokens {
				p.Limits[j].HeldFor = p.MaxTTL
			}
			if p.Limits[j].MaxOvershoot > 0 && !s.Has(at+"/on_store_loss") {
				p.OnStoreLoss = quota.FailClosed // the others suspend the bound
			}
		}
	}
	for i := range t.RLS.Domains {
		o := &t.RLS.Domains[i]
		if o.At = quota.Under("/rls/domains", o.Name); o.MaxOvershoot > 0 && !s.Has(o.At+"/on_store_loss") {
			o.OnStoreLoss = quota.FailClosed
		}
		if o.MaxTTL != 0 && !s.Has(o.At+"/max_hold") {
			o.MaxHold = 100
		}
	}
	if f := t.ForwardAuth; f != nil {
		f.Missing = cmp.Or(f.Missing, quota.MissingDeny)
		if !s.Has("/forward_auth/ipv6_prefix") {
			f.IPv6Prefix = quota.DefaultIPv6Prefix
		}
		f.Tenant.Header = textproto.CanonicalMIMEHeaderKey(f.Tenant.Header)
		if from := f.PolicyFrom; from != nil {
			from.Header = textproto.CanonicalMIMEHeaderKey(from.Header)
		}
		for i := range f.Dimensions { // as net/http looks them up
			f.Dimensions[i].Header = textproto.CanonicalMIMEHeaderKey(f.Dimensions[i].Header)
		}
		for i := range f.Routes {
			if r := &f.Routes[i]; !r.Skip && !s.Has(quota.Item("/forward_auth/routes", i)+"/cost") {
				r.Cost = 1
			}
		}
	}
}

// completeLimit refuses what quota would take for absent, and sorts the dimensions,
// whose names it checks while they are where the file has them.
func completeLimit(s *Source, l *quota.Limit, at string) {
	if s.Has(at+"/burst") && l.Burst == 0 && !s.mistaken(at+"/burst") {
		s.note(s.At(at+"/burst"), "must be between 1 and %d, is 0", quota.MaxUnits)
	}
	if s.Has(at+"/near") && l.Near == 0 && !s.mistaken(at+"/near") {
		s.note(s.At(at+"/near"), "must be above 0%%; leave it out to log nothing")
	}
	by := map[string]bool{}
	for i, name := range l.By {
		pointer := quota.Item(at+"/by", i)
		if err := quota.ValidName(name); err != nil && !s.mistaken(pointer) {
			s.note(s.At(pointer), "%v", err)
		} else if by[name] {
			s.note(s.At(pointer), "dimension %q is duplicated", name)
		} else if err == nil {
			by[name] = true
		}
	}
	l.By = slices.Sorted(maps.Keys(by))
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

// maxProblems bounds what is reported of one file: hundreds of thousands fit in.
const maxProblems = 100

// inOrder sorts problems as a reader of the file meets them, and keeps the first ones.
func inOrder(ps []Problem) []Problem {
	slices.SortStableFunc(ps, func(a, b Problem) int {
		return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column), cmp.Compare(a.Pointer, b.Pointer))
	})
	if n := len(ps) - maxProblems; n > 0 {
		next := ps[maxProblems].Place
		ps = append(ps[:maxProblems], Problem{Place: Place{next.Line, next.Column, ""}, Detail: fmt.Sprintf("%d more follow", n)})
	}
	return ps
}

// Invalid is the error for a file that is no topology: every mistake in the order of the
// file, or the first one alone of what is no YAML or too large.
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
