package overrides

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/regiond/regiond/quota"
	"github.com/regiond/regiond/region"
)

// editAttempts is how often an edit is tried while others of the same tenant come before it.
const editAttempts = 16

// ErrContended is that others kept editing the same override meanwhile. Nothing was changed.
var ErrContended = errors.New("the override was edited by others at the same time, and this edit was not carried out")

// Edit carries out an edit. It is in force in this process when Edit returns, and in all others of the region within a second.
// An error that is *quota.Invalid is a mistake of the edit, and nothing was changed. After another one but ErrContended it
// may have been carried out.
func (v *Overlay) Edit(ctx context.Context, e quota.Edit) (quota.Edited, error) {
	next := e.Override
	top := v.o.Topology()
	if wrong := v.check(top, &next); len(wrong) > 0 {
		return quota.Edited{}, &quota.Invalid{Fault: quota.FaultInput, Fields: wrong}
	}
	for range editAttempts {
		known, kept, err := v.current(ctx, next.Tenant)
		if err != nil {
			return quota.Edited{}, err
		}
		r := quota.Edited{Before: known, Ignored: ignored(top, &next)}
		if !known.InForce(v.o.TimeUS()) {
			r.Before = nil
		}
		if r.After = r.Before; r.Before != nil {
			r.Version = r.Before.Version
		}
		switch {
		case e.IfNone && r.Before != nil, e.IfMatch != "" && r.Version.String() != e.IfMatch:
			r.Refused = true
			return r, v.announce(ctx, known)
		case r.Before == nil && next.Deleted, r.Before != nil && r.Before.SameTerms(&next) && r.Before.Reason == next.Reason:
			if err := v.announce(ctx, known); err != nil {
				return quota.Edited{}, err
			}
			r.Regions = v.everywhere(ctx, r.Before, kept)
			return r, nil
		}
		if known == nil && v.table.full(false) {
			return quota.Edited{}, &quota.Invalid{Fault: quota.FaultInput, Fields: []quota.FieldError{{Detail: errFull.Error()}}}
		}
		var replaced quota.OverrideVersion
		if known != nil {
			replaced = known.Version
		}
		next.Version = replaced.Next(v.o.TimeUS(), v.o.Region)
		text := next.Text()
		swapped, err := v.keeper.swap(ctx, true, replacement{next.Tenant, kept, text})
		if err != nil {
			return quota.Edited{}, fmt.Errorf("keep the override: %w", err)
		}
		if !swapped[0] {
			continue
		}
		v.table.fold(&next)
		if err := v.announce(ctx, &next); err != nil {
			return quota.Edited{}, err
		}
		if r.Version, r.After = next.Version, &next; next.Deleted {
			r.After = nil
		}
		r.Regions = v.publish(ctx, &next, text)
		return r, nil
	}
	return quota.Edited{}, ErrContended
}

// announce has the siblings read an override, nil for none. It comes also before the answer to an edit that changes nothing: it may be
// one that is sent again, since the first was kept and then failed.
func (v *Overlay) announce(ctx context.Context, o *quota.Override) error {
	if o == nil {
		return nil
	}
	if err := v.keeper.announce(ctx, o.Tenant); err != nil {
		return fmt.Errorf("announce the override: %w", err)
	}
	return nil
}

// policyOf is the policy that a tenant has with an override, nil for none.
func policyOf(top *region.Topology, o *quota.Override) *quota.Policy {
	name := o.Policy
	if t, listed := top.Tenants.Listed[o.Tenant]; name == "" && listed {
		name = t.Policy
	} else if name == "" && top.Tenants.Default != nil {
		name = top.Tenants.Default.Policy
	}
	return top.Policy(name)
}

// check returns all that is wrong with what an edit sets.
func (v *Overlay) check(top *region.Topology, o *quota.Override) []quota.FieldError {
	var wrong quota.FieldErrors
	wrong.Check("/tenant", quota.ValidID(o.Tenant))
	if o.Deleted || len(wrong) > 0 {
		return wrong
	}
	if wrong = o.Validate(v.o.TimeUS()); len(wrong) > 0 {
		return wrong
	}
	p := policyOf(top, o)
	if p == nil {
		wrong.When(o.Policy != "", "/policy", "%.80q is not a policy of the topology", o.Policy)
		wrong.When(o.Policy == "", "/policy", "is missing: the topology neither lists the tenant nor has a default")
		return wrong
	}
	for _, set := range o.Limits {
		at, l := "/limits/"+set.Name, p.Limit(set.Name)
		if l == nil {
			switch domain := domainOf(top, set.Name); {
			case anyHas(top, set.Name):
			case domain != "":
				wrong.Add(at, "is a limit of rate limit domain %.80q, and an override changes those of the tenant's policy; with policy_from of the domain "+
					"that policy decides, or let the domain's file name the tenant", domain)
			default:
				wrong.Add(at, "is a limit of no policy of the topology")
			}
			continue
		}
		most := l.Units * top.MostOverride()
		other := *l
		other.Units = set.Units
		switch {
		case set.Units > most:
			wrong.Add(at, "must be at most %d, which is max_override, %dx, of the topology's %d; it is %d",
				most, top.MostOverride(), l.Units, set.Units)
		case set.Units > 0:
			for _, w := range other.Validate() {
				wrong.Add(at, "%s", w.Detail)
			}
		}
	}
	return wrong
}

// domainOf is the first domain with a limit of that name, "" for none. Its file gives each descriptor a limit, a single tenant's as well,
// and names of limits come from keys of descriptors, so one name may be in several domains: an override of a name would not say which.
func domainOf(top *region.Topology, limit string) string {
	for i := range top.RLS.Domains {
		if r := top.RLS.Domains[i].Rules; r != nil && r.Policy().Limit(limit) != nil {
			return top.RLS.Domains[i].Name
		}
	}
	return ""
}

// anyHas reports whether any policy has a limit of this name.
func anyHas(top *region.Topology, limit string) bool {
	return slices.ContainsFunc(top.Policies, func(p quota.Policy) bool { return p.Limit(limit) != nil })
}

// ignored are the limits that the policy in force does not have.
func ignored(top *region.Topology, o *quota.Override) (names []string) {
	p := policyOf(top, o)
	for _, l := range o.Limits {
		if p == nil || p.Limit(l.Name) == nil {
			names = append(names, l.Name)
		}
	}
	return names
}

// Ineffective returns the tenants with an override of which a topology makes no use or not all, at most n: its policy or a limit
// is gone, none of what it sets is of the policy in force, or it sets more than the topology allows. They are kept, and come into
// force again when the topology has and allows what they name.
func (v *Overlay) Ineffective(top *region.Topology, n int) (tenants []string) {
	for slice := range sliceCount {
		for _, o := range v.table.of(slice) {
			if len(tenants) == n {
				return tenants
			}
			gone := o.Policy != "" && top.Policy(o.Policy) == nil
			nothing := o.Policy == "" && o.Enforcement == nil && len(ignored(top, o)) == len(o.Limits)
			p := policyOf(top, o)
			less := slices.ContainsFunc(o.Limits, func(set quota.OverrideLimit) bool {
				if p == nil || p.Limit(set.Name) == nil {
					return !anyHas(top, set.Name)
				}
				l := p.Limit(set.Name)
				return set.Units > l.MostUnder(top.MostOverride())
			})
			if o.InForce(v.o.TimeUS()) && (gone || nothing || less) {
				tenants = append(tenants, o.Tenant)
			}
		}
	}
	return tenants
}
