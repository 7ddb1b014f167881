package httpapi

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"

	"github.com/regiond/regiond/httpapi/answer"
	"github.com/regiond/regiond/httpapi/paths"
	"github.com/regiond/regiond/quota"
)

// decisionHeader carries the decision for gateways that can only pass on 403.
const (
	decisionHeader  = "X-Regiond-Decision"
	decisionAllow   = "allow"
	decisionDeny    = "deny"
	decisionInvalid = "invalid"
)

// authzPath serves ANY /v1/authz/{path...}: method and path are the request's own.
func (c *call) authzPath() { c.authz(c.Method, "/"+c.tail, nil) }

// authzForwarded serves ANY /v1/authz, for gateways that call a fixed address.
func (c *call) authzForwarded() { c.authzHeaders("X-Forwarded-Method", "X-Forwarded-Uri") }

// authzNginx serves ANY /v1/authz-nginx.
func (c *call) authzNginx() { c.authzHeaders("X-Original-Method", "X-Original-Uri") }

// authzHeaders reads method and path from two headers, and from no others: the
// end user could choose one that the gateway does not overwrite.
func (c *call) authzHeaders(methodHeader, uriHeader string) {
	if c.settings.ForwardAuth == nil || len(c.settings.ForwardAuth.Routes) == 0 {
		c.authz("", "", nil)
		return
	}
	method, err := soleValue(c.Header, methodHeader)
	uri, uriErr := soleValue(c.Header, uriHeader)
	if err = errors.Join(err, uriErr); err == nil && (method == "" || uri == "") {
		err = errors.New("headers " + methodHeader + " and " + uriHeader + " are needed, since routes are configured: the gateway must set both")
	}
	path := ""
	if err == nil {
		if path, err = paths.Target(uri); err != nil {
			err = fmt.Errorf("the path of header %s %w", uriHeader, err)
		}
	}
	c.authz(method, path, err)
}

// authz decides about a request that a gateway holds; unclear is why its method
// or path cannot be known.
func (c *call) authz(method, path string, unclear error) {
	if !c.enter() {
		return
	}
	f := c.settings.ForwardAuth
	if f == nil && c.said.Tenant != "" {
		f = &quota.ForwardAuth{}
	}
	if f == nil {
		c.refuse(answer.Problem{
			Kind: answer.NoForwardAuth, Detail: "Set forward_auth in topology.yaml: at least forward_auth: {tenant: {header: X-Tenant}}.",
		})
		return
	}
	var matched *quota.Route
	unclear = errors.Join(unclear, c.said.Unclear)
	switch {
	case unclear != nil:
	case c.said.Route != "":
		matched, unclear = c.said.route(f)
	case len(f.Routes) > 0:
		matched, unclear = paths.Route(f, method, path)
	}
	if unclear != nil {
		c.unattributed(unclear)
		return
	}
	if matched != nil && matched.Skip {
		c.authzAllow()
		return
	}
	req, err := identify(f, &c.Request, &c.said)
	if err != nil {
		c.unattributed(err)
		return
	}
	if !c.mayName(req.Tenant) {
		return
	}
	req.Policy, req.PolicyDefault, req.Cost = c.said.Policy, c.said.NoPolicy, 1
	if len(f.Routes) > 0 || matched != nil {
		name := quota.RouteOther
		if matched != nil {
			name, req.Cost = matched.Name, max(1, matched.Cost)
		}
		req.Dimensions = append(req.Dimensions, quota.Dimension{Name: quota.RouteDimension, Value: name})
	}
	_, _ = req.Dimensions.Sort() // the names differ
	req.Cost = cmp.Or(c.said.Cost, req.Cost)
	o := &c.Limiter.Decide(c.timed(), []quota.Question{{Request: req}})[0]
	if !c.decided(o, false) {
		return
	}
	d := &o.Decision
	if c.logDecision(d, req.Dimensions); !d.Allowed {
		c.answer(d, c.denial(d))
		return
	}
	c.decision = d
	c.describe(d, false)
	c.authzAllow()
}

func (c *call) unattributed(err error) {
	c.logRefusal("unattributed", err.Error())
	c.refuse(answer.Problem{Kind: answer.Identity, Detail: err.Error()})
}

func (c *call) authzAllow() {
	c.Fields.Set(decisionHeader, decisionAllow)
	c.write(http.StatusOK, "", nil)
}

// forGateway gives a refusal a status that gateways pass on, also when a fail mode is closed: they would take a
// 5xx for an outage of the limiter, and nginx turns anything but 403 into one.
func (c *call) forGateway(p *answer.Problem) {
	decision := decisionInvalid
	switch p.Kind {
	case answer.Quota, answer.Reduced, answer.Cost:
		decision, p.Status = decisionDeny, http.StatusTooManyRequests
	default:
		p.Status = http.StatusForbidden
	}
	if c.endpoint.guard == guardForwardNginx {
		p.Status = http.StatusForbidden
	}
	c.Fields.Set(decisionHeader, decision)
}
