package httpapi

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/pprof"
	"strings"

	"github.com/regiond/regiond/httpapi/answer"
	"github.com/regiond/regiond/quota"
)

// healthz reports that the process answers. It does not depend on Redis, which a
// restart would not bring back.
func (c *call) healthz() { c.write(http.StatusOK, typeJSON, []byte("{\"status\":\"ok\"}\n")) }

// readyz reports whether traffic should come here.
func (c *call) readyz() {
	ok, reasons := c.Ready()
	status := http.StatusOK
	if !ok {
		status = http.StatusServiceUnavailable
	}
	if reasons == nil {
		reasons = []string{}
	}
	c.write(status, typeJSON, answer.JSON(struct {
		Ready   bool     `json:"ready"`
		Reasons []string `json:"reasons"`
	}{ok, reasons}))
}

// regions serves GET /v1/regions.
func (c *call) regions() {
	c.json(c.Regions())
}

// reopen serves POST /v1/reopen/{region}.
func (c *call) reopen() {
	refused, err := "this region has nothing that a loss could close", error(nil)
	if c.Reopen != nil {
		refused, err = c.Reopen(c.ctx, c.tail)
	}
	switch {
	case err != nil:
		c.failed(err, "not reopened", "Whether the region was reopened is not known: "+err.Error())
	case refused != "":
		c.refuse(answer.Problem{Kind: answer.Invalid, Status: http.StatusConflict, Detail: refused})
	default:
		c.log("region reopened", 0, []slog.Attr{slog.String("region", c.tail)})
		c.write(http.StatusNoContent, "", nil)
	}
}

// reset serves DELETE /v1/usage/{tenant}. It refuses other parameters: a caller might
// believe that only one policy was reset.
func (c *call) reset() {
	const all = "everywhere=1"
	tenant, ok := c.pathTenant(all)
	if !ok {
		return
	}
	if c.query == all {
		c.resetEverywhere(tenant)
		return
	}
	ctx, cancel := context.WithTimeout(c.ctx, ResetTimeout)
	defer cancel()
	if err := c.Limiter.Reset(ctx, tenant); err != nil {
		c.failed(err, "not reset", fmt.Sprintf("The usage was deleted in part or not at all: the store is unavailable, "+
			"or has more keys than can be scanned in %v. The log has the reason.", ResetTimeout))
		return
	}
	c.logReset(tenant)
	c.write(http.StatusNoContent, "", nil)
}

// resetEverywhere serves DELETE /v1/usage/{tenant}?everywhere=1.
func (c *call) resetEverywhere(tenant string) {
	if c.ResetEverywhere == nil {
		c.refuse(answer.Problem{Kind: answer.Alone, Detail: "Regions ask each other under a shared key only: configure more than one, and gossip.key_file. " +
			"Without everywhere=1 this region alone deletes its usage."})
		return
	}
	ctx, cancel := context.WithTimeout(c.ctx, ResetTimeout)
	defer cancel()
	regions, err := c.ResetEverywhere(ctx, tenant)
	if err != nil {
		c.failed(err, "not reset", "This region deleted the usage in part or not at all; others may have deleted it. The log has the reason.")
		return
	}
	c.logReset(tenant)
	c.json(struct {
		Regions []quota.RegionReset `json:"regions"`
	}{regions})
}

// scrape serves GET /metrics.
func (c *call) scrape() { c.passOn(c.Metrics, nil) }

// page serves GET / and the files of the page.
func (c *call) page() { c.passOn(c.Page, nil) }

// events serves GET /v1/events for as long as the caller may have it: a session ends, and a reload
// may take the token away.
func (c *call) events() {
	c.Conn.Prove() // it lasts
	c.passOn(c.Events, func() error {
		c.settings = c.Settings()
		if caller, detail := c.authenticate(); detail != "" || c.endpoint.forbids(caller) != "" {
			return errors.New("the caller may not read this any more")
		}
		return nil
	})
}

// demo serves POST /demo/{path}.
func (c *call) demo() {
	if c.Demo == nil {
		c.refuse(answer.Problem{Kind: answer.NotFound, Detail: "Only `regiond demo` has this call."})
		return
	}
	c.passOn(c.Demo, nil)
}

// pprof serves /debug/pprof/.
func (c *call) pprof() {
	page, ok := map[string]http.HandlerFunc{
		"cmdline": pprof.Cmdline, "profile": pprof.Profile, "symbol": pprof.Symbol, "trace": pprof.Trace,
	}[strings.TrimPrefix(c.r.URL.Path, "/debug/pprof/")]
	if !ok {
		page = pprof.Index
	}
	c.passOn(page, nil)
}

//go:embed openapi.yaml
var openapiYAML []byte

// openapi serves GET /v1/openapi.yaml to anyone: it contains nothing secret.
func (c *call) openapi() {
	c.write(http.StatusOK, "application/yaml", openapiYAML)
}

// passOn lets another handler answer, for as long as may returns no error; nil is for any time. The admin listener has
// net/http's engine.
func (c *call) passOn(h http.Handler, may func() error) {
	h.ServeHTTP(&passed{c.w, c, may}, c.r)
	if c.mounted = true; c.Status == 0 {
		c.Status = http.StatusOK
	}
}

// passed is what another handler writes to. It records the status. Unwrap lets
// http.ResponseController reach the connection, which long profiles need.
type passed struct {
	http.ResponseWriter
	call *call
	may  func() error
}

// WriteHeader implements http.ResponseWriter.
func (p *passed) WriteHeader(status int) {
	p.Header().Set("Cache-Control", "no-store") // http.FileServer takes it away from errors
	if p.call.mounted = true; p.call.Status == 0 {
		p.call.Status = status
	}
	p.ResponseWriter.WriteHeader(status)
}

// Write implements http.ResponseWriter.
func (p *passed) Write(b []byte) (int, error) {
	if p.call.Status == 0 {
		p.WriteHeader(http.StatusOK)
	}
	if p.may != nil {
		if err := p.may(); err != nil {
			return 0, err
		}
	}
	return p.ResponseWriter.Write(b)
}

// FlushError is what http.ResponseController calls: it sends a header that has not been written.
func (p *passed) FlushError() error {
	if p.call.Status == 0 {
		p.WriteHeader(http.StatusOK)
	}
	return http.NewResponseController(p.ResponseWriter).Flush()
}

// Unwrap returns the underlying writer.
func (p *passed) Unwrap() http.ResponseWriter { return p.ResponseWriter }
