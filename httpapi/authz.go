package httpapi

import (
	"errors"
	"net/http"

	"github.com/regiond/regiond/quota"
)

// decisionHeader tells a gateway that can only pass 403 on what it stands for.
const (
	decisionHeader  = "X-Regiond-Decision"
	decisionAllow   = "allow"
	decisionDeny    = "deny"
	decisionInvalid = "invalid"
)

// authzPath serves ANY /v1/authz/{path...}: method and path are the request's own.
func (c *call) authzPath() { c.authz(c.r.Method, "/"+c.tail, nil) }

// authzForwarded serves ANY /v1/authz, which gateways with a fixed address call.
func (c *call) authzForwarded() { c.authzHeaders("X-Forwarded-Method", "X-Forwarded-Uri") }

// authzNginx serves ANY /v1/authz-nginx.
func (c *call) authzNginx() { c.authzHeaders("X-Original-Method", "X-Original-Uri") }

// authzHeaders reads method and path from two headers, and from no others: one
// that the gateway does not overwrite would be the end user's to choose.
func (c *call) authzHeaders(methodHeader, uriHeader string) {
	if c.settings.ForwardAuth == nil || len(c.settings.ForwardAuth.Routes) == 0 {
		c.authz("", "", nil)
		return
	}
	method, err := soleValue(c.r.Header, methodHeader)
	uri, uriErr := soleValue(c.r.Header, uriHeader)
	if err = errors.Join(err, uriErr); err == nil && (method == "" || uri == "") {
		err = errors.New("headers " + methodHeader + " and " + uriHeader + " are needed, since routes are configured: the gateway must set both")
	}
	path := ""
	if err == nil {
		if path, err = target(uri); err != nil {
			err = errors.New("the path of header " + uriHeader + " " + err.Error())
		}
	}
	c.authz(method, path, err)
}

// authz decides about a request that a gateway holds; unclear says why its
// method or path cannot be known.
func (c *call) authz(method, path string, unclear error) {
	f := c.settings.ForwardAuth
	if f == nil {
		c.authzRefuse(problem{kind: kindNoForwardAuth, detail: "Set forward_auth in topology.yaml: at least forward_auth: {tenant: {header: X-Tenant}}."}, decisionInvalid)
		return
	}
	var matched *Route
	if len(f.Routes) > 0 && unclear == nil {
		var err error
		if matched, err = f.route(method, path); err != nil {
			unclear = errors.New("the path " + err.Error())
		}
	}
	if unclear != nil {
		c.unattributed(unclear.Error())
		return
	}
	if matched != nil && matched.Skip {
		c.authzAllow()
		return
	}
	tenant, dims, err := f.identify(c.r)
	if err != nil {
		c.unattributed(err.Error())
		return
	}
	req := quota.Request{Tenant: tenant, Dimensions: dims, Cost: 1}
	if len(f.Routes) > 0 {
		name := OtherRoute
		if matched != nil {
			name, req.Cost = matched.Name, max(1, matched.Cost)
		}
		req.Dimensions = append(req.Dimensions, quota.Dimension{Name: RouteDimension, Value: name})
	}
	_, _ = req.Dimensions.Sort() // names differ: Settings.Validate
	c.authzAsk(req)
}

func (c *call) authzAsk(req quota.Request) {
	ctx := c.deadline()
	defer ctx.end()
	d, err := c.Limiter.Check(ctx, req)
	if err != nil {
		c.authzUndecided(err)
		return
	}
	c.traceDecision(&d, "")
	c.logDecision(&d, req.Dimensions)
	c.field = setFields(c.w.Header(), &d, c.fieldInput(!d.Allowed), c.field)
	if d.Allowed {
		c.authzAllow()
		return
	}
	p := refusal(&d, c.field)
	p.status = http.StatusTooManyRequests // for a closed one too
	p.status = c.authzStatus(p)
	c.out = append(c.out[:0], '{')
	c.out = appendRefusal(c.out, &d, &p)
	c.out = append(c.out, '}', '\n')
	c.w.Header()[decisionHeader] = []string{decisionDeny}
	c.write(p.status, c.problem, c.out)
}

// authzUndecided never lets an error look like an outage of the limiter, which
// gateways answer by letting everything through, or nothing.
func (c *call) authzUndecided(err error) {
	var bad *quota.Invalid
	if !errors.As(err, &bad) {
		c.logRefusal("undecided", err.Error())
		c.reduced(noDecision)
		return
	}
	p := invalid(bad.Fault, bad.Fields)
	c.logRefusal("invalid", bad.Error())
	if bad.Fault == quota.FaultCost {
		p.status = http.StatusTooManyRequests
		c.authzRefuse(p, decisionDeny)
		return
	}
	p.kind, p.status = kindIdentity, http.StatusForbidden
	c.authzRefuse(p, decisionInvalid)
}

func (c *call) unattributed(detail string) {
	c.logRefusal("unattributed", detail)
	c.authzRefuse(problem{kind: kindIdentity, detail: detail}, decisionInvalid)
}

func (c *call) authzAllow() {
	c.w.Header()[decisionHeader] = []string{decisionAllow}
	c.write(http.StatusOK, nil, nil)
}

// authzRefuse writes a refusal in a status that the gateway passes on.
func (c *call) authzRefuse(p problem, decision string) {
	p.status = c.authzStatus(p)
	c.w.Header()[decisionHeader] = []string{decision}
	c.refuse(p)
}

// authzStatus is 403 where nginx would turn anything else into a 500.
func (c *call) authzStatus(p problem) int {
	if c.route.guard == guardForwardNginx {
		return http.StatusForbidden
	}
	return p.code()
}
