package region

import (
	"log/slog"
	"slices"
	"strings"

	"github.com/regiond/regiond/quota"
)

// The schema: one function per mapping of topology.yaml, each naming its fields
// once. What an absent field means is set before the fields are read; what the
// values must be is in Validate.

func (r *reader) topology(n *node, t *Topology) {
	t.MaxUnknown = DefaultMaxUnknown
	t.Headers = Headers{Format: HeadersDraft11, XReset: ResetDelta}
	r.fields(n, map[string]take{
		"cluster":      r.text(&t.Cluster),
		"regions":      list(r, &t.Regions, r.region),
		"policies":     list(r, &t.Policies, r.policy),
		"tenants":      into(&t.Tenants, r.tenants),
		"max_unknown":  r.whole(&t.MaxUnknown),
		"forward_auth": optional(&t.ForwardAuth, r.forwardAuth),
		"headers":      into(&t.Headers, r.headers),
		"access":       into(&t.Access, r.access),
		"log_level":    r.logLevel(&t.LogLevel),
	})
	r.need(n, "regions", "policies", "tenants")
}

func (r *reader) region(n *node, g *Region) {
	*g = Region{Weight: DefaultWeight, Admin: DefaultAdmin, Redis: Redis{Embedded: true}, NATS: NATS{Embedded: true}}
	r.fields(n, map[string]take{
		"name":   r.text(&g.Name),
		"weight": r.whole(&g.Weight),
		"http":   r.text(&g.HTTP),
		"admin":  r.text(&g.Admin),
		"gossip": optional(&g.Gossip, r.gossip),
		"redis":  into(&g.Redis, r.redis),
		"nats":   into(&g.NATS, r.nats),
	})
	r.need(n, "name", "http")
	if g.Gossip != nil && g.NATS.Embedded && g.NATS.Gateway == "" {
		g.NATS.Gateway = portAfter(g.Gossip.Advertise)
	}
}

func (r *reader) gossip(n *node, g *Gossip) {
	r.fields(n, map[string]take{
		"bind":      r.text(&g.Bind),
		"advertise": r.text(&g.Advertise),
		"key_file":  r.text(&g.KeyFile),
	})
	r.need(n, "bind", "advertise")
}

func (r *reader) redis(n *node, s *Redis) {
	*s = Redis{}
	r.fields(n, map[string]take{
		"embedded":      r.truth(&s.Embedded),
		"addrs":         r.texts(&s.Addrs),
		"mode":          wordOf(r, &s.Mode),
		"master":        r.text(&s.Master),
		"username":      r.text(&s.Username),
		"password_file": r.text(&s.PasswordFile),
		"tls":           optional(&s.TLS, r.tls),

		"sentinel_username":      r.text(&s.SentinelUsername),
		"sentinel_password_file": r.text(&s.SentinelPasswordFile),
	})
	if s.Mode == "" && !s.Embedded {
		s.Mode = RedisStandalone
	}
}

func (r *reader) nats(n *node, s *NATS) {
	*s = NATS{}
	r.fields(n, map[string]take{
		"embedded":   r.truth(&s.Embedded),
		"gateway":    r.text(&s.Gateway),
		"urls":       r.texts(&s.URLs),
		"creds_file": r.text(&s.CredsFile),
		"tls":        optional(&s.TLS, r.tls),
	})
}

func (r *reader) tls(n *node, t *TLS) {
	r.fields(n, map[string]take{
		"ca_file":   r.text(&t.CAFile),
		"cert_file": r.text(&t.CertFile),
		"key_file":  r.text(&t.KeyFile),
	})
}

func (r *reader) policy(n *node, p *quota.Policy) {
	p.EnforcePercent = -1
	r.fields(n, map[string]take{
		"name":          r.text(&p.Name),
		"limits":        list(r, &p.Limits, r.limit),
		"on_partition":  r.word(&p.OnPartition),
		"on_store_loss": r.word(&p.OnStoreLoss),
		"enforcement":   r.word(&p.Enforcement),
		"enforce_share": r.percent(&p.EnforcePercent),
	})
	r.need(n, "name", "limits")
}

func (r *reader) limit(n *node, l *quota.Limit) {
	r.fields(n, map[string]take{
		"name":           r.text(&l.Name),
		"units":          r.whole(&l.Units),
		"per":            r.duration(&l.Window),
		"algorithm":      r.word(&l.Algorithm),
		"scope":          r.word(&l.Scope),
		"burst":          r.burst(&l.Burst),
		"global_buckets": r.buckets(&l.GlobalBuckets),
		"by":             r.by(&l.By),
		"when":           r.when(&l.When),
	})
	r.need(n, "name", "units", "per")
}

// burst refuses a zero that is written: inside quota it means "absent".
func (r *reader) burst(dst *int64) take {
	return func(n *node) {
		if r.whole(dst)(n); n.text == "0" {
			r.wrong(n.Place, "must be between 1 and %d, is 0", quota.MaxUnits)
		}
	}
}

func (r *reader) buckets(dst *int) take {
	return func(n *node) {
		v := int64(2)
		r.whole(&v)(n)
		if v < 2 || v > quota.MaxGlobalBuckets {
			r.wrong(n.Place, "must be between 2 and %d, is %s", quota.MaxGlobalBuckets, clip(n.text))
			return
		}
		*dst = int(v)
	}
}

// by sorts what quota wants sorted, so it checks the names itself, while they
// still stand where the file has them.
func (r *reader) by(dst *[]string) take {
	return func(n *node) {
		var names []string
		r.texts(&names)(n)
		for i, name := range names {
			if r.said[item(n.Pointer, i)] {
				continue
			}
			if err := quota.ValidName(name); err != nil {
				r.wrong(n.items[i].Place, "%v", err)
			} else if slices.Contains(*dst, name) {
				r.wrong(n.items[i].Place, "dimension %q stands twice", name)
			} else {
				*dst = append(*dst, name)
			}
		}
		slices.Sort(*dst)
	}
}

func (r *reader) when(dst *[]quota.Match) take {
	return func(n *node) {
		if !r.is(n, "a mapping such as {route: login}", mapping) {
			return
		}
		for _, e := range n.entries {
			var value string
			if r.text(&value)(e.value); r.shape != nil {
				return
			}
			if err := quota.ValidName(e.key); err != nil {
				r.wrong(e.Place, "%v", err)
			} else if err := quota.ValidID(value); err != nil {
				r.wrong(e.value.Place, "%v", err)
			} else {
				*dst = append(*dst, quota.Match{Dimension: e.key, Value: value})
			}
		}
		slices.SortFunc(*dst, func(a, b quota.Match) int { return strings.Compare(a.Dimension, b.Dimension) })
	}
}

func (r *reader) tenants(n *node, ts *Tenants) {
	if !r.is(n, string(mapping), mapping) {
		return
	}
	ts.Listed = make(map[string]Tenant, len(n.entries))
	for _, e := range n.entries {
		var t Tenant
		if r.tenant(e.value, &t); r.shape != nil {
			return
		}
		if e.key == DefaultTenant {
			ts.Default = &t
			continue
		}
		if err := quota.ValidID(e.key); err != nil {
			r.wrong(e.Place, "a tenant id %v", err)
		}
		ts.Listed[e.key] = t
	}
}

func (r *reader) tenant(n *node, t *Tenant) {
	r.fields(n, map[string]take{
		"policy":      r.text(&t.Policy),
		"enforcement": optional(&t.Enforcement, func(n *node, e *quota.Enforcement) { r.word(e)(n) }),
	})
	r.need(n, "policy")
}

func (r *reader) headers(n *node, h *Headers) {
	r.fields(n, map[string]take{
		"format":  wordOf(r, &h.Format),
		"x_reset": wordOf(r, &h.XReset),
	})
}

// logLevel takes four words of the many that slog would.
func (r *reader) logLevel(dst *slog.Level) take {
	return func(n *node) {
		var word string
		r.text(&word)(n)
		switch word {
		case "debug", "info", "warn", "error":
			if err := dst.UnmarshalText([]byte(word)); err != nil {
				r.wrong(n.Place, "%v", err)
			}
		default:
			r.wrong(n.Place, "is one of debug, info, warn, error, not %q", clip(word))
		}
	}
}

func (r *reader) access(n *node, a *Access) {
	r.fields(n, map[string]take{
		"tokens_file":       r.text(&a.TokensFile),
		"cert_file":         r.text(&a.CertFile),
		"key_file":          r.text(&a.KeyFile),
		"client_ca_file":    r.text(&a.ClientCAFile),
		"admin_tokens_file": r.text(&a.AdminTokensFile),
	})
}
