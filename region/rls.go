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
	// Domains are by the name that their files have as `domain`. Files are reloaded like topology.yaml.
	//
	// They are sorted by name.
	Domains []Domain `yaml:"domains"`
	// Compat is true, or a mapping of addresses, for the listeners that the image of envoyproxy/ratelimit has, in every region,
	// for scripts and probes. Default: `false`. Callers are those of `access`.
	Compat Compat `yaml:"compat"`
}

// Compat are the listeners that the image of envoyproxy/ratelimit has. In topology.yaml it is true, or a mapping of those that
// are elsewhere. The zero value has none.
type Compat struct {
	// HTTP is host:port of /json and /healthcheck. Default: `0.0.0.0:8080`.
	HTTP string `yaml:"http"`
	// GRPC is host:port of the rate limit service. Default: `0.0.0.0:8081`.
	GRPC string `yaml:"grpc"`
	// Debug is host:port of /rlconfig. Default: `0.0.0.0:6070`.
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
		ps.Check(l.field, checkListen(l.addr))
		_, taken := portTaken(l.addr, own[:i])
		ps.When(taken, l.field, "is %s, as another of compat", quota.Clip(l.addr))
		for i := range regions {
			if other, taken := portTaken(l.addr, regions[i].listeners()); taken {
				ps.Add(l.field, "is %s, which is %s of region %q; move one of them, as `compat: {%s: \"host:port\"}`",
					quota.Clip(l.addr), other, quota.Clip(regions[i].Name), l.name)
			}
		}
	}
}

// Files are paths. In topology.yaml one may stand alone.
type Files []string

// Domain is one domain of Envoy's rate limit service: files of envoyproxy/ratelimit, and how it is counted.
type Domain struct {
	Name string // of the file's own `domain`
	At   string // the pointer to it in topology.yaml
	// Files are the path of the file, from the folder of topology.yaml, or a list of paths: each file then has some of the
	// domain's descriptors.
	Files Files `yaml:"file,required"`
	// Scope is that of all its limits. Default: `region`.
	Scope quota.Scope `yaml:"scope"`
	// Tenant are keys of descriptors: the first that a descriptor has says whose it is. Without any, it is the domain's.
	// Descriptors of one tenant are decided together.
	Tenant []string `yaml:"tenant"`
	// PolicyFrom has descriptors with one of the keys of `tenant` decided by the policy of their tenant, as checks of the API are, and
	// not by the domain's file. docs/configure.md says which policy that is.
	PolicyFrom *PolicyFrom `yaml:"policy_from"`
	// Charge says which requests are charged. Default: `weighted`. docs/coming-from.md compares them.
	Charge Charge `yaml:"charge"`
	// Overrides is whether a limit in a request counts, in its region. Default: `false`.
	Overrides bool `yaml:"overrides"`
	// Refunds is whether is_negative_hits takes hits back, with `scope: region` alone. Default: `false`, which refuses it.
	Refunds bool `yaml:"refunds"`
	// Metadata is whether the metadata of answers has domain, descriptors, hitsAddend and quotaModeEnabled, as
	// envoyproxy/ratelimit's. Default: `false`.
	Metadata bool `yaml:"dynamic_metadata"`
	// OnPartition is as of a policy. Default: `share`.
	OnPartition quota.FailMode `yaml:"on_partition"`
	// OnStoreLoss is as of a policy. Without it: share, and closed with `max_overshoot`.
	OnStoreLoss quota.FailMode `yaml:"on_store_loss"`
	// OnOverload is as of a policy. Default: `shed`.
	OnOverload quota.OverloadMode `yaml:"on_overload"`
	// MaxOvershoot is as of a limit, for all limits of the domain. Default: `none`.
	MaxOvershoot quota.Overshoot `yaml:"max_overshoot"`
	// MaxTTL is as of a policy, 1s to 1h. With it the domain takes reservations over Kuadrant's service, and its limits count
	// tokens (docs/tokens.md).
	//
	// 0 for a domain that takes none.
	MaxTTL time.Duration `yaml:"max_ttl"`
	// MaxHold is as of a policy, above 0% to 100%, and needs `max_ttl`. Without it a reservation may hold 100%.
	MaxHold float64 `yaml:"max_hold"`

	// Rules are what is in the files. nil until package rls has read them.
	Rules Rules
	// Sum is of the files' contents.
	Sum [sha256.Size]byte
}

// PolicyFrom is where a descriptor has the policy of its tenant. Its value is trusted as that of the tenant's key is.
type PolicyFrom struct {
	// Descriptor is the key of the entry, whose value the gateway has verified, such as a claim of a JWT.
	Descriptor string `yaml:"descriptor,required"`
	// Policies are the values that count: a list of policies, or a mapping of values to policies. Without it, each value is the name of
	// a policy.
	Policies map[string]string `yaml:"policies"`
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
	// ChargeWeighted charges what is admitted; a descriptor that names its own cost is charged whatever is left.
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
		ps.When(d.Name == "", d.At, "a domain has a name")
		ps.uniqueItems("key", d.At+"/tenant", d.Tenant)
		ps.uniqueItems("file", d.At+"/file", d.Files)
		ps.When(len(d.Files) == 0, d.At+"/file", "a domain has a file")
		ps.When(d.Refunds && d.Scope == quota.ScopeGlobal, d.At+"/refunds",
			"needs scope: region; other regions keep the most that they received of a count, and would not see it fall")
		if from := d.PolicyFrom; from != nil {
			at := d.At + "/policy_from"
			ps.When(len(d.Tenant) == 0, at, "needs `tenant`: the keys of descriptors that say whose they are")
			ps.When(from.Descriptor == "", at+"/descriptor", "must not be empty")
			ps.When(d.MaxTTL > 0, at, "is not for a domain with max_ttl, whose reservations are of the limits of its file; remove one of both")
			t.validatePolicyValues(ps, at, from.Policies)
		}
		switch {
		case d.MaxOvershoot == 0:
		case d.Scope != quota.ScopeGlobal:
			ps.Add(d.At+"/max_overshoot", "needs scope: global; a limit of one region is exact")
		case keyless:
			ps.Add(d.At+"/max_overshoot", keylessBound)
		}
		if d.MaxTTL == 0 {
			ps.When(d.MaxHold != 0, d.At+"/max_hold", "needs max_ttl; without it the domain takes no reservations")
			continue
		}
		ps.Reservations(d.At, d.MaxTTL, d.MaxHold)
	}
}
