package region

import (
	"crypto/sha256"
	"path/filepath"
	"slices"
	"time"

	"github.com/regiond/regiond/quota"
)

// RLS is what Envoy's rate limit service answers by.
type RLS struct {
	Domains []Domain `yaml:"domains"` // sorted by name
	Compat  Compat   `yaml:"compat"`
}

// Compat are the listeners that the image of envoyproxy/ratelimit has. In topology.yaml it is true, or a mapping of those that
// are elsewhere. The zero value has none.
type Compat struct {
	HTTP  string `yaml:"http"`
	GRPC  string `yaml:"grpc"`
	Debug string `yaml:"debug"`
}

// DefaultCompat is where that image listens.
var DefaultCompat = Compat{HTTP: "0.0.0.0:8080", GRPC: "0.0.0.0:8081", Debug: "0.0.0.0:6070"}

// listeners has none where there is no Compat.
func (c *Compat) listeners() []listener {
	if *c == (Compat{}) {
		return nil
	}
	return []listener{{"http", "/rls/compat/http", c.HTTP}, {"grpc", "/rls/compat/grpc", c.GRPC}, {"debug", "/rls/compat/debug", c.Debug}}
}

// validate checks the listeners, beside those that a region has too.
func (c *Compat) validate(ps *problems, regions []Region) {
	own := c.listeners()
	for i, l := range own {
		ps.check(l.field, checkListen(l.addr))
		_, taken := portTaken(l.addr, own[:i])
		ps.when(taken, l.field, "is %s, as another of compat", quota.Clip(l.addr))
		for i := range regions {
			if other, taken := portTaken(l.addr, regions[i].listeners()); taken {
				ps.add(l.field, "is %s, which is %s of region %q; move one of them, as `compat: {%s: \"host:port\"}`",
					quota.Clip(l.addr), other, quota.Clip(regions[i].Name), l.name)
			}
		}
	}
}

// Files are paths. In topology.yaml one may stand alone.
type Files []string

// Domain is one domain of Envoy's rate limit service: files of envoyproxy/ratelimit, and how it is counted.
type Domain struct {
	Name  string // of the file's own `domain`
	At    string // the pointer to it in topology.yaml
	Files Files  `yaml:"file,required"` // paths, from the folder of topology.yaml
	// Scope is that of all its limits.
	Scope quota.Scope `yaml:"scope"`
	// Tenant are keys of descriptors: the first one that a descriptor has says whose it is.
	Tenant       []string           `yaml:"tenant"`
	Charge       Charge             `yaml:"charge"`
	Overrides    bool               `yaml:"overrides"`        // whether a limit in a request counts
	Refunds      bool               `yaml:"refunds"`          // whether is_negative_hits takes back what was charged
	Metadata     bool               `yaml:"dynamic_metadata"` // whether answers repeat the request in their metadata
	OnPartition  quota.FailMode     `yaml:"on_partition"`
	OnStoreLoss  quota.FailMode     `yaml:"on_store_loss"`
	OnOverload   quota.OverloadMode `yaml:"on_overload"`
	MaxOvershoot quota.Overshoot    `yaml:"max_overshoot"`
	// MaxTTL and MaxHold are those of its reservations, as of quota.Policy; 0 for a domain that takes none.
	MaxTTL  time.Duration `yaml:"max_ttl"`
	MaxHold float64       `yaml:"max_hold"`

	// Rules are what is in the files. nil until package rls has read them.
	Rules Rules
	// Sum is of the files' contents.
	Sum [sha256.Size]byte
}

// Paths are where the files are, seen from the folder of the topology.
func (d *Domain) Paths(topology string) []string {
	paths := slices.Clone(d.Files)
	for i, file := range paths {
		if !filepath.IsAbs(file) {
			paths[i] = filepath.Join(filepath.Dir(topology), file)
		}
	}
	return paths
}

// Rules are the compiled file of a domain.
type Rules interface {
	// Policy has all its limits.
	Policy() *quota.Policy
}

// Charge says which requests of a domain are charged. The zero value is ChargeWeighted.
type Charge uint8

const (
	// ChargeWeighted charges what is admitted, and a descriptor that names its own cost whatever is left.
	ChargeWeighted Charge = iota
	// ChargeAdmitted charges what is admitted.
	ChargeAdmitted
	// ChargeAlways charges what is refused, too.
	ChargeAlways
)

var chargeNames = []string{"weighted", "admitted", "always"}

// String returns the name used in topology.yaml.
func (c Charge) String() string { return quota.EnumName(chargeNames, uint8(c)) }

// UnmarshalText implements encoding.TextUnmarshaler.
func (c *Charge) UnmarshalText(text []byte) error { return quota.ParseName(c, chargeNames, text) }

// EveryPolicy returns the policies of the topology and, once their files are read, of its domains.
func (t *Topology) EveryPolicy() []*quota.Policy {
	var all []*quota.Policy
	for i := range t.Policies {
		all = append(all, &t.Policies[i])
	}
	for i := range t.RLS.Domains {
		if r := t.RLS.Domains[i].Rules; r != nil {
			all = append(all, r.Policy())
		}
	}
	return all
}

func (t *Topology) validateRLS(ps *problems) {
	t.RLS.Compat.validate(ps, t.Regions)
	keyless := len(t.Regions) > 1 && slices.ContainsFunc(t.Regions, func(g Region) bool { return !g.keyed() })
	for i := range t.RLS.Domains {
		d := &t.RLS.Domains[i]
		ps.when(d.Name == "", d.At, "a domain has a name")
		ps.uniqueItems("key", d.At+"/tenant", d.Tenant)
		ps.uniqueItems("file", d.At+"/file", d.Files)
		ps.when(len(d.Files) == 0, d.At+"/file", "a domain has a file")
		ps.when(d.Refunds && d.Scope == quota.ScopeGlobal, d.At+"/refunds",
			"needs scope: region; other regions keep the most that they received of a count, and would not see it fall")
		switch {
		case d.MaxOvershoot == 0:
		case d.Scope != quota.ScopeGlobal:
			ps.add(d.At+"/max_overshoot", "needs scope: global; a limit of one region is exact")
		case keyless:
			ps.add(d.At+"/max_overshoot", keylessBound)
		}
		if d.MaxTTL == 0 {
			ps.when(d.MaxHold != 0, d.At+"/max_hold", "needs max_ttl; without it the domain takes no reservations")
			continue
		}
		ps.when(d.MaxTTL < quota.MinTTL || d.MaxTTL > quota.MaxTTL, d.At+"/max_ttl", "must be between 1s and 1h, is %v", d.MaxTTL)
		ps.when(d.MaxHold <= 0 || d.MaxHold > 100, d.At+"/max_hold", "must be above 0%% and at most 100%%")
	}
}
