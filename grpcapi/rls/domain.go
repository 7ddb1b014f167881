// Package rls reads the files of envoyproxy/ratelimit and finds the rule that applies to a descriptor.
//
// The files of a domain become a Domain: a tree of descriptors for matching, and a policy that has a limit for each rate_limit. It
// decides nothing and counts nothing.
package rls

import (
	"slices"
	"strings"

	"google.golang.org/protobuf/types/known/structpb"

	"github.com/regiond/regiond/quota"
	"github.com/regiond/regiond/region"
)

// Domain is the files of envoyproxy/ratelimit of one domain, compiled. Immutable.
type Domain struct {
	region.Domain        // what topology.yaml says; its Tenant are keys
	Tenant        string // whose the requests are that have none of the tenant keys

	byPolicy Rule
	policy   quota.Policy
	rules    []*Rule
	root     node
}

// Policy has a limit for each rule that counts anything.
func (d *Domain) Policy() *quota.Policy { return &d.policy }

// Rules are all rules, in the order of the file.
func (d *Domain) Rules() []*Rule { return d.rules }

// ByPolicy is the rule of descriptors that their tenant's policy decides. It has no limit of its own.
func (d *Domain) ByPolicy() *Rule { return &d.byPolicy }

// Rule is one rate_limit of the file. Immutable.
type Rule struct {
	Path       string       // as envoyproxy/ratelimit names it: "generic_key_slow.user_id"
	Limit      *quota.Limit // nil where Unlimited; where PerUnit is 0 it refuses always and is none of the policy
	Name       string
	Replaces   []string // names of rules that do not apply beside it
	PerUnit    uint32
	Unit       int32 // as in the protocol
	Multiplier uint32
	Unlimited  bool
	Shadow     bool
	Quota      bool
	Metadata   *structpb.Struct // of answers that the rule does not refuse; nil for none

	own   bool // came with a request
	steps []step
	dims  []dimension
}

// kind says how the values of an entry are counted.
type kind uint8

const (
	fixed    kind = iota // the file names the only one
	byValue              // each apart
	together             // all that match, together
)

// step is one descriptor on the way to a rule.
type step struct {
	key  string
	name string // key, or key_value
	kind kind
}

// dimension is an entry of a descriptor whose values are counted apart.
type dimension struct {
	entry int
	name  string
}

type node struct {
	step
	rule      *Rule
	children  map[string]*node // by name
	wildcards []*node          // those with a *, in the order of the file
}

// Entry is one entry of a descriptor.
type Entry interface {
	GetKey() string
	GetValue() string
}

// Match returns the rule that applies to a descriptor, nil for none. At each entry it tries what the file has for the
// exact key and value, then wildcards in the file's order, then the key alone. It applies only at its own depth.
//
// Key and value are compared joined by "_", as envoyproxy/ratelimit does; what is counted is not joined.
func Match[E Entry](d *Domain, entries []E) *Rule {
	n := &d.root
	var array [256]byte
	for i, e := range entries {
		joined := append(append(append(array[:0], e.GetKey()...), '_'), e.GetValue()...)
		next := n.children[string(joined)]
		for w := 0; next == nil && w < len(n.wildcards); w++ {
			if matches(n.wildcards[w].name, joined) {
				next = n.wildcards[w]
			}
		}
		if next == nil {
			next = n.children[e.GetKey()]
		}
		switch {
		case next == nil:
			return nil
		case i == len(entries)-1:
			return next.rule
		}
		n = next
	}
	return nil
}

// matches reports whether text is what pattern says, in which each * stands for any bytes.
func matches(pattern string, text []byte) bool {
	first, rest, more := strings.Cut(pattern, "*")
	if !strings.HasPrefix(string(text), first) {
		return false
	}
	left := string(text[len(first):])
	for more {
		first, rest, more = strings.Cut(rest, "*")
		if !more {
			return strings.HasSuffix(left, first)
		}
		at := strings.Index(left, first)
		if at < 0 {
			return false
		}
		left = left[at+len(first):]
	}
	return left == ""
}

// Dimensions appends those that the rule counts a descriptor by.
func Dimensions[E Entry](dst quota.Dimensions, r *Rule, entries []E) quota.Dimensions {
	if r.own {
		return append(dst, quota.Dimension{Name: override, Value: whole(r.Limit.Window, entries)})
	}
	for _, v := range r.dims {
		e := entries[v.entry]
		value := e.GetValue()
		if key := e.GetKey(); key != r.steps[v.entry].key { // the file's has a *, or what is joined is the same
			value = key + "\x00" + value
		}
		dst = append(dst, quota.Dimension{Name: v.name, Value: ID(value)})
	}
	return dst
}

// Claim makes of a descriptor that its tenant's policy decides the request for that, without cost: of the first entry that is one of
// the domain's tenant keys comes the tenant, of the entry of policy_from the policy, and of the others dimensions. nil: the domain's
// file decides it.
//
// Of several entries with one key the first counts. A key that no dimension may have is left out.
func Claim[E Entry](d *Domain, entries []E) *quota.Request {
	if d.PolicyFrom == nil {
		return nil
	}
	find := func(key string) int { return slices.IndexFunc(entries, func(e E) bool { return e.GetKey() == key }) }
	tenant := -1
	for i := 0; tenant < 0 && i < len(d.Domain.Tenant); i++ {
		tenant = find(d.Domain.Tenant[i])
	}
	if tenant < 0 {
		return nil
	}
	r := &quota.Request{Tenant: ID(entries[tenant].GetValue()), PolicyValues: d.PolicyFrom.Policies, IgnoreUnknown: true}
	for i, e := range entries {
		switch key := e.GetKey(); {
		case find(key) < i || i == tenant:
		case key == d.PolicyFrom.Descriptor:
			r.TenantPolicy = e.GetValue()
		case quota.ValidName(key) == nil:
			r.Dimensions = append(r.Dimensions, quota.Dimension{Name: key, Value: ID(e.GetValue())})
		}
	}
	_, _ = r.Dimensions.Sort() // the names differ
	return r
}

// TenantOf is whose a descriptor is: the value of the first key in the domain's list that it has, unless the rule counts
// that key's values together, else the domain's own. It is asked of a rule that matched.
func TenantOf[E Entry](d *Domain, r *Rule, entries []E) string {
	for _, key := range d.Domain.Tenant {
		for i, e := range entries {
			switch {
			case !r.own && r.steps[i].kind == together:
			case !r.own && r.steps[i].kind == fixed:
				if r.steps[i].key == key {
					return ID(r.steps[i].name[len(key)+1:])
				}
			case e.GetKey() == key:
				return ID(e.GetValue())
			}
		}
	}
	return d.Tenant
}
