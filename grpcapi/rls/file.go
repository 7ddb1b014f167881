package rls

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/structpb"

	"github.com/regiond/regiond/quota"
	"github.com/regiond/regiond/region"
)

// root is a file of envoyproxy/ratelimit. Its keys are all that those files have.
type root struct {
	Name        string       `yaml:"name"` // Envoy Gateway writes one
	Domain      string       `yaml:"domain"`
	Descriptors []descriptor `yaml:"descriptors"`
}

type descriptor struct {
	Key            string       `yaml:"key"`
	Value          string       `yaml:"value"`
	RateLimit      *rateLimit   `yaml:"rate_limit"`
	Descriptors    []descriptor `yaml:"descriptors"`
	ShadowMode     bool         `yaml:"shadow_mode"`
	QuotaMode      bool         `yaml:"quota_mode"`
	DetailedMetric bool         `yaml:"detailed_metric"`
	ValueToMetric  bool         `yaml:"value_to_metric"`
	ShareThreshold bool         `yaml:"share_threshold"`
	Metadata       any          `yaml:"metadata"`
	Name           string       `yaml:"name"`
}

type rateLimit struct {
	Unit            string     `yaml:"unit"`
	RequestsPerUnit int64      `yaml:"requests_per_unit"`
	UnitMultiplier  int64      `yaml:"unit_multiplier"`
	Unlimited       bool       `yaml:"unlimited"`
	Name            string     `yaml:"name"`
	Replaces        []replaced `yaml:"replaces"`
}

type replaced struct {
	Name string `yaml:"name"`
}

// compiler turns a file into a Domain and collects what is wrong or different.
type compiler struct {
	src      *region.Source
	path     string
	domain   *Domain
	wrong    []region.Problem
	warnings []region.Problem
	names    map[string]string // of limits, with the paths that they were made of
}

func (c *compiler) mistake(at, format string, args ...any) {
	c.wrong = append(c.wrong, region.Problem{File: c.path, Place: c.src.At(at), Detail: fmt.Sprintf(format, args...)})
}

func (c *compiler) warn(at, format string, args ...any) {
	c.warnings = append(c.warnings, region.Problem{File: c.path, Place: c.src.At(at), Detail: fmt.Sprintf(format, args...)})
}

// Source is one file of a domain.
type Source struct {
	Path string // for problems
	Text []byte
}

// Compile reads files of envoyproxy/ratelimit as topology.yaml's domain says: one descriptor at the top is in one of
// them. Without mistakes it returns what to answer by, and as warnings what is decided otherwise than envoyproxy/ratelimit does.
func Compile(settings *region.Domain, sources ...Source) (d *Domain, mistakes, warnings []region.Problem) {
	d = &Domain{
		Domain: *settings, Tenant: ID(settings.Name),
		policy: quota.Policy{
			Name: policyName(settings.Name), OnPartition: settings.OnPartition, OnStoreLoss: settings.OnStoreLoss,
			OnOverload: settings.OnOverload, EnforcePercent: -1, MaxTTL: settings.MaxTTL, MaxHold: settings.MaxHold,
		},
	}
	c := compiler{domain: d, names: map[string]string{}}
	for _, s := range sources {
		c.read(&s)
	}
	if len(c.wrong) > 0 {
		return nil, c.wrong, nil
	}
	d.policy.Limits = make([]quota.Limit, 0, len(d.rules))
	for _, r := range d.rules {
		if r.Limit != nil && r.PerUnit > 0 {
			d.policy.Limits = append(d.policy.Limits, *r.Limit)
			r.Limit = &d.policy.Limits[len(d.policy.Limits)-1]
		}
	}
	return d, nil, c.warnings
}

// read adds what is in a file.
func (c *compiler) read(s *Source) {
	var file root
	var wrong []region.Problem
	c.path = s.Path
	if c.src, wrong = region.Decode(s.Text, &file); len(wrong) > 0 {
		for i := range wrong {
			wrong[i].File = s.Path
		}
		c.wrong = append(c.wrong, wrong...)
		return
	}
	mistakes, warnings := len(c.wrong), len(c.warnings)
	switch {
	case file.Domain == "":
		c.mistake("/domain", "the file needs a domain")
	case file.Domain != c.domain.Name:
		c.mistake("/domain", "is domain %q, and topology.yaml names it %q", quota.Clip(file.Domain), quota.Clip(c.domain.Name))
	}
	refunds := "hits with is_negative_hits are refused without refunds: true"
	if c.domain.Refunds {
		refunds = "is_negative_hits takes back the newest hits"
	}
	c.warn("", "limits are of sliding windows, where envoyproxy/ratelimit's begin anew with each unit; the descriptors of a request "+
		"are charged all or none, where its are charged each; %s", refunds)
	c.descriptors(&c.domain.root, file.Descriptors, "/descriptors", nil)
	for _, ps := range [][]region.Problem{c.wrong[mistakes:], c.warnings[warnings:]} {
		slices.SortStableFunc(ps, func(a, b region.Problem) int {
			return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
		})
	}
}

// descriptors adds those of one level below a node. path is what leads to it.
func (c *compiler) descriptors(n *node, ds []descriptor, at string, path []step) {
	for i := range ds {
		own := &ds[i]
		here := fmt.Sprintf("%s/%d", at, i)
		if own.Key == "" {
			c.mistake(here+"/key", "a descriptor has a key that is not empty")
			continue
		}
		s := step{key: own.Key, name: own.Key, kind: byValue}
		if own.Value != "" {
			s.name += "_" + own.Value
			s.kind = fixed
		}
		if strings.Contains(s.name, "*") {
			s.kind = byValue
			if own.ShareThreshold {
				s.kind = together
			}
		}
		if n.children[s.name] != nil {
			c.mistake(here+"/key", "descriptor %q is duplicated", quota.Clip(s.name))
			continue
		}
		if own.ShareThreshold && !strings.Contains(s.name, "*") {
			c.mistake(here+"/share_threshold", "needs a value with a *: it has all that match counted together")
		}
		for _, flag := range []struct {
			set  bool
			name string
		}{{own.DetailedMetric, "detailed_metric"}, {own.ValueToMetric, "value_to_metric"}} {
			if flag.set {
				c.warn(here+"/"+flag.name, "has no effect: metrics are by limit and never by value")
			}
		}
		child := &node{step: s}
		own.add(n, child)
		below := append(slices.Clip(path), s)
		if own.RateLimit != nil {
			child.rule = c.rule(own, here+"/rate_limit", below)
		}
		if more := own.Metadata; more != nil {
			fields, ok := more.(map[string]any)
			var metadata *structpb.Struct
			var err error
			if metadata, err = structpb.NewStruct(fields); !ok || err != nil {
				c.mistake(here+"/metadata", "must be a mapping of UTF-8 text")
			} else if child.rule != nil {
				child.rule.Metadata = metadata
			}
		}
		c.descriptors(child, own.Descriptors, here+"/descriptors", below)
	}
}

func (*descriptor) add(n, child *node) {
	if n.children == nil {
		n.children = map[string]*node{}
	}
	n.children[child.name] = child
	if strings.Contains(child.name, "*") {
		n.wildcards = append(n.wildcards, child)
	}
}

type unitName struct {
	name   string
	number int32 // in the protocol
	lasts  time.Duration
}

// units are what a limit may be per.
var units = []unitName{
	{"second", 1, time.Second},
	{"minute", 2, time.Minute},
	{"hour", 3, time.Hour},
	{"day", 4, 24 * time.Hour},
	{"month", 5, 30 * 24 * time.Hour},
	{"year", 6, 365 * 24 * time.Hour},
	{"week", 7, 7 * 24 * time.Hour},
}

// rule compiles a rate_limit; nil after a mistake.
func (c *compiler) rule(own *descriptor, at string, path []step) *Rule {
	l := own.RateLimit
	if key := slices.IndexFunc(path, func(s step) bool { return slices.Contains(c.domain.Domain.Tenant, s.key) }); key >= 0 && c.domain.PolicyFrom != nil {
		c.warn(at, "is never reached: with policy_from the policy of its tenant decides a descriptor with the key %q, and not this file", path[key].key)
	}
	r := &Rule{
		Path: pathText(path), Name: l.Name, Unlimited: l.Unlimited, Shadow: own.ShadowMode, Quota: own.QuotaMode,
		steps: path, PerUnit: uint32(min(max(l.RequestsPerUnit, 0), math.MaxUint32)), //nolint:gosec // it is between the two
	}
	for i, o := range l.Replaces {
		switch o.Name {
		case "":
			c.mistake(fmt.Sprintf("%s/replaces/%d", at, i), "names the limit that is replaced")
		case l.Name:
			c.mistake(fmt.Sprintf("%s/replaces/%d", at, i), "is the limit's own name")
		}
		r.Replaces = append(r.Replaces, o.Name)
	}
	if l.RequestsPerUnit < 0 || l.RequestsPerUnit > math.MaxUint32 {
		c.mistake(at+"/requests_per_unit", "must be between 0 and %d, is %d", uint32(math.MaxUint32), l.RequestsPerUnit)
	}
	unit := slices.IndexFunc(units, func(u unitName) bool { return strings.EqualFold(u.name, l.Unit) })
	switch {
	case l.Unlimited && unit >= 0:
		c.mistake(at+"/unit", "what is unlimited has no unit")
		return nil
	case l.Unlimited:
		c.domain.rules = append(c.domain.rules, r)
		return r
	case unit < 0:
		c.mistake(at+"/unit", "must be one of second, minute, hour, day, week, month, is %q", quota.Clip(l.Unit))
		return nil
	}
	multiplier := int64(1)
	if c.src.Has(at + "/unit_multiplier") {
		multiplier = l.UnitMultiplier
	}
	most := int64(quota.MaxWindow / units[unit].lasts)
	if multiplier < 1 || multiplier > most {
		if most == 0 {
			c.mistake(at+"/unit", "a window lasts at most 744h (31 days)")
		} else {
			c.mistake(at+"/unit_multiplier", "must be between 1 and %d, so that the window lasts at most 744h (31 days), is %d", most, multiplier)
		}
		return nil
	}
	r.Unit, r.Multiplier = units[unit].number, uint32(multiplier) //nolint:gosec // it is at most MaxWindow in seconds
	c.domain.rules = append(c.domain.rules, r)
	c.limit(r, units[unit].lasts*time.Duration(multiplier), at)
	return r
}

// limit makes the limit of a rule.
func (c *compiler) limit(r *Rule, window time.Duration, at string) {
	l := &quota.Limit{
		Name: limitName(r.steps), Units: int64(r.PerUnit), Window: window, Scope: c.domain.Scope, MaxOvershoot: c.domain.MaxOvershoot,
		Refundable: c.domain.Refunds,
	}
	if c.domain.policy.MaxTTL > 0 { // what a reservation holds is its amount
		l.Counts, l.HeldFor = quota.CountsTokens, c.domain.policy.MaxTTL
	}
	if other, taken := c.names[l.Name]; taken {
		c.mistake(at, "its limit has the name %s, as that of %s", l.Name, quota.Clip(other))
		return
	}
	c.names[l.Name] = r.Path
	if l.Units > quota.MaxLogUnits {
		l.Algorithm, l.MaxOvershoot = quota.SlidingWindow, 0
		c.warn(at+"/requests_per_unit", "%d is above %d and counted by algorithm sliding_window: a window may hold up to twice as many", l.Units, quota.MaxLogUnits)
		if c.domain.MaxOvershoot > 0 {
			c.warn(at+"/requests_per_unit", "max_overshoot does not hold for algorithm sliding_window")
		}
	}
	for i, s := range r.steps {
		if s.kind == byValue {
			r.dims = append(r.dims, dimension{entry: i, name: fmt.Sprintf("v%02d_%s", i, l.Name)})
			l.By = append(l.By, r.dims[len(r.dims)-1].name)
		}
	}
	if len(r.dims) == 0 {
		l.By = []string{"s_" + l.Name} // which no request has: a partition of the rule alone
	}
	r.Limit = l
}
