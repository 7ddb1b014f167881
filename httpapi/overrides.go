package httpapi

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/regiond/regiond/httpapi/answer"
	"github.com/regiond/regiond/httpapi/input"
	"github.com/regiond/regiond/quota"
)

const (
	// editsPerSecond bounds the edits of one caller.
	editsPerSecond = 10
	// editTimeout bounds an edit and a look-up, which wait for Redis and other regions.
	editTimeout = 3 * time.Second
	// anonymous made the edits of a caller without a name.
	anonymous = "anonymous"
)

// override is one in an answer.
type override struct {
	Tenant      string           `json:"tenant,omitempty"`
	Version     string           `json:"version,omitempty"`
	Deleted     bool             `json:"deleted,omitempty"`
	Policy      string           `json:"policy,omitempty"`
	Enforcement string           `json:"enforcement,omitempty"`
	Limits      map[string]int64 `json:"limits,omitempty"`
	ExpiresAt   string           `json:"expires_at,omitempty"`
	By          string           `json:"by,omitempty"`
	Reason      string           `json:"reason,omitempty"`
	SetAt       string           `json:"set_at,omitempty"`
}

func newOverride(o *quota.Override) *override {
	if o == nil {
		return nil
	}
	a := &override{
		Tenant: o.Tenant, Version: o.Version.String(), Deleted: o.Deleted, Policy: o.Policy, By: o.By, Reason: o.Reason,
		SetAt: quota.TimeText(o.Version.WallUS), Limits: map[string]int64{},
	}
	if o.Enforcement != nil {
		a.Enforcement = o.Enforcement.String()
	}
	for _, l := range o.Limits {
		a.Limits[l.Name] = l.Units
	}
	if o.ExpiresUS > 0 {
		a.ExpiresAt = quota.TimeText(o.ExpiresUS)
	}
	return a
}

// setOverride serves PUT /v1/overrides/{tenant}.
func (c *call) setOverride() {
	tenant, ok := c.pathTenant("")
	if !ok {
		return
	}
	body, ok := c.readBody()
	if !ok {
		return
	}
	o, wrong := input.Override(body)
	o.Tenant = tenant
	c.edit(o, wrong)
}

// deleteOverride serves DELETE /v1/overrides/{tenant}.
func (c *call) deleteOverride() {
	if tenant, ok := c.pathTenant(""); ok {
		c.edit(quota.Override{Tenant: tenant, Deleted: true}, nil)
	}
}

// edit carries out an edit and answers. wrong is what the body has broken.
func (c *call) edit(o quota.Override, wrong []quota.FieldError) {
	e := quota.Edit{Override: o}
	var more []quota.FieldError
	e.IfMatch, e.IfNone, more = input.Condition(c.Header.Values("If-Match"), c.Header.Values("If-None-Match"))
	if c.broken(append(wrong, more...)) {
		return
	}
	if _, ok := c.edits.Pass(c.caller.Name, c.start); !ok {
		c.Fields.Set(answer.RetryAfter, "1")
		c.refuse(answer.Problem{Kind: answer.Edits, Detail: fmt.Sprintf(
			"A caller may edit %d overrides a second. Nothing was changed; send it again after a second.", editsPerSecond)})
		return
	}
	e.Override.By = cmp.Or(c.caller.Name, anonymous)
	ctx, cancel := context.WithTimeout(c.ctx, editTimeout)
	defer cancel()
	r, err := c.Overrides.Edit(ctx, e)
	if bad := (*quota.Invalid)(nil); errors.As(err, &bad) {
		c.refuse(answer.Problem{Kind: answer.Override, Detail: "Nothing was changed; see errors for each mistake.", Errs: bad.Fields})
		return
	}
	if version := r.Version.String(); version != "" {
		c.Fields.Set("Etag", `"`+version+`"`)
	}
	switch {
	case err != nil:
		c.failed(err, "override not set",
			"Whether the override was changed is not known: "+err.Error()+". Read it, and send the edit again.")
	case r.Refused && e.IfNone:
		c.otherOverride("The tenant has an override, and If-None-Match: * wants none")
	case r.Refused && r.Before == nil:
		c.otherOverride("The tenant has no override any more")
	case r.Refused:
		c.otherOverride("The override is version " + r.Version.String() + " now: read it, and send what it is to be with its ETag in If-Match")
	case o.Deleted && r.Before == nil:
		c.noOverride()
	default:
		c.edited(o.Tenant, &e, &r)
	}
}

func (c *call) otherOverride(why string) {
	c.refuse(answer.Problem{Kind: answer.Precondition, Detail: why + ". Nothing was changed."})
}

func (c *call) noOverride() {
	c.refuse(answer.Problem{Kind: answer.NoOverride, Detail: "The tenant has what the topology says."})
}

// edited answers an edit that is in force, and writes the line of the audit, which is not sampled.
func (c *call) edited(tenant string, e *quota.Edit, r *quota.Edited) {
	if r.Before != r.After {
		attrs := []slog.Attr{
			slog.String("tenant", tenant), slog.String("version", r.Version.String()),
			slog.String("old", r.Before.Describe()), slog.String("new", r.After.Describe()),
		}
		if e.Override.ExpiresUS > 0 {
			attrs = append(attrs, slog.String("expires_at", quota.TimeText(e.Override.ExpiresUS)))
		}
		if e.Override.Reason != "" {
			attrs = append(attrs, slog.String("reason", e.Override.Reason))
		}
		c.log("override changed", 0, attrs)
	}
	regions := map[string]string{}
	for _, g := range r.Regions {
		regions[g.Region] = g.Result
	}
	c.json(struct {
		Tenant  string            `json:"tenant"`
		Version string            `json:"version"`
		Regions map[string]string `json:"regions"`
		Ignored []string          `json:"ignored,omitempty"`
	}{tenant, r.Version.String(), regions, r.Ignored})
}

// showOverride serves GET /v1/overrides/{tenant}.
func (c *call) showOverride() {
	tenant, ok := c.pathTenant("")
	if !ok {
		return
	}
	ctx, cancel := context.WithTimeout(c.ctx, editTimeout)
	defer cancel()
	switch o, err := c.Overrides.Read(ctx, tenant); {
	case err != nil:
		c.failed(err, "override not read", "The override cannot be read now: "+err.Error())
	case o == nil:
		c.noOverride()
	default:
		c.Fields.Set("Etag", `"`+o.Version.String()+`"`)
		c.json(newOverride(o))
	}
}

// listOverrides serves GET /v1/overrides.
func (c *call) listOverrides() {
	after, n, errs := input.Overrides(c.query)
	if c.broken(errs) {
		return
	}
	all, next, err := c.Overrides.List(after, n)
	if err != nil {
		c.failed(err, "overrides not listed", "The overrides cannot be listed now: "+err.Error())
		return
	}
	page := struct {
		Overrides []*override `json:"overrides"`
		Next      string      `json:"next_cursor,omitempty"`
	}{make([]*override, len(all)), next}
	for i, o := range all {
		page.Overrides[i] = newOverride(o)
	}
	c.json(page)
}

// overrideHistory serves GET /v1/overrides/{tenant}/history.
func (c *call) overrideHistory() {
	tenant, ok := c.pathTenant("")
	if !ok {
		return
	}
	ctx, cancel := context.WithTimeout(c.ctx, editTimeout)
	defer cancel()
	all, err := c.Overrides.History(ctx, tenant)
	if err != nil {
		c.failed(err, "history not read", "The history cannot be read now: "+err.Error())
		return
	}
	type edit struct {
		Old *override `json:"old"`
		New *override `json:"new"`
	}
	edits := make([]edit, min(len(all), quota.MaxEdits))
	for i := range edits {
		edits[i].New = newOverride(all[i])
		if i+1 < len(all) {
			edits[i].Old = newOverride(all[i+1])
		}
	}
	c.json(struct {
		Edits []edit `json:"edits"`
	}{edits})
}
