package httpapi

import (
	_ "embed"
	"errors"
	"fmt"
	"net/http"
	"net/http/pprof"
	"strings"

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
	c.out = appendValue(c.out[:0], struct {
		Ready   bool     `json:"ready"`
		Reasons []string `json:"reasons"`
	}{ok, reasons})
	c.write(status, typeJSON, append(c.out, '\n'))
}

// regions serves GET /v1/regions.
func (c *call) regions() {
	c.out = appendValue(c.out[:0], c.Regions())
	c.write(http.StatusOK, typeJSON, append(c.out, '\n'))
}

// reset serves DELETE /v1/usage/{tenant}. It refuses other parameters: a caller might
// believe that only one policy was reset.
func (c *call) reset() {
	var errs []quota.FieldError
	tenant, err := pathID(c.tail)
	if err == nil {
		err = quota.ValidID(tenant)
	}
	if err != nil {
		errs = append(errs, quota.FieldError{Pointer: "/tenant", Detail: err.Error()})
	}
	everywhere := c.query == "everywhere=1"
	if c.query != "" && !everywhere {
		errs = append(errs, quota.FieldError{Detail: "unexpected query: there is only everywhere=1"})
	}
	if len(errs) > 0 {
		c.refuse(invalid(quota.FaultInput, errs))
		return
	}
	if !c.mayName(tenant) {
		return
	}
	if everywhere {
		c.resetEverywhere(tenant)
		return
	}
	if err := c.Limiter.Reset(c.within(ResetTimeout), tenant); err != nil {
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
		c.refuse(problem{kind: kindAlone, detail: "Regions ask each other under a shared key only: configure more than one, and gossip.key_file. " +
			"Without everywhere=1 this region alone deletes its usage."})
		return
	}
	regions, err := c.ResetEverywhere(c.within(ResetTimeout), tenant)
	if err != nil {
		c.failed(err, "not reset", "This region deleted the usage in part or not at all; others may have deleted it. The log has the reason.")
		return
	}
	c.logReset(tenant)
	c.out = appendValue(c.out[:0], struct {
		Regions []quota.RegionReset `json:"regions"`
	}{regions})
	c.write(http.StatusOK, typeJSON, append(c.out, '\n'))
}

// scrape serves GET /metrics.
func (c *call) scrape() { c.mounted(c.Metrics) }

// page serves GET / and the files of the page.
func (c *call) page() { c.mounted(c.Page) }

// events serves GET /v1/events for as long as the caller may have it: a session ends, and a reload
// may take the token away.
func (c *call) events() {
	c.prove() // it lasts
	c.standard.w = &guarded{c.standard.w, c}
	c.mounted(c.Events)
}

// guarded asks before each write whether the caller still may.
type guarded struct {
	http.ResponseWriter
	call *call
}

// Write implements io.Writer.
func (g *guarded) Write(b []byte) (int, error) {
	c := g.call
	if fresh := c.Settings(); fresh != nil {
		c.settings = fresh
	}
	if caller, detail := c.authenticate(); detail != "" || c.endpoint.forbids(caller) != "" {
		return 0, errors.New("the caller may not read this any more")
	}
	return g.ResponseWriter.Write(b) //nolint:wrapcheck // of one that is wrapped
}

// Unwrap implements http.ResponseController's way to the connection.
func (g *guarded) Unwrap() http.ResponseWriter { return g.ResponseWriter }

// demo serves POST /demo/{path}.
func (c *call) demo() {
	if c.Demo == nil {
		c.refuse(problem{kind: kindNotFound, detail: "Only `regiond demo` has this call."})
		return
	}
	c.mounted(c.Demo)
}

// pprof serves /debug/pprof/.
func (c *call) pprof() {
	page, ok := map[string]http.HandlerFunc{
		"cmdline": pprof.Cmdline, "profile": pprof.Profile, "symbol": pprof.Symbol, "trace": pprof.Trace,
	}[strings.TrimPrefix(c.standard.r.URL.Path, "/debug/pprof/")]
	if !ok {
		page = pprof.Index
	}
	c.mounted(page)
}

//go:embed openapi.yaml
var openapiYAML []byte

// openapi serves GET /v1/openapi.yaml to anyone: it contains nothing secret.
func (c *call) openapi() {
	c.write(http.StatusOK, "application/yaml", openapiYAML)
}

// mounted lets another handler answer. The admin listener has net/http's engine.
func (c *call) mounted(h http.Handler) {
	c.standard.w.Header().Set("Cache-Control", "no-store")
	h.ServeHTTP(&statusWriter{ResponseWriter: c.standard.w, call: c}, c.standard.r)
	if c.status == 0 {
		c.status = http.StatusOK
	}
}

// statusWriter records the status that another handler chose. Unwrap lets
// http.ResponseController reach the connection, which long profiles need.
type statusWriter struct {
	http.ResponseWriter
	call *call
}

// WriteHeader implements http.ResponseWriter.
func (w *statusWriter) WriteHeader(status int) {
	w.Header().Set("Cache-Control", "no-store") // http.FileServer takes it away from errors
	if w.call.status == 0 {
		w.call.status = status
	}
	w.ResponseWriter.WriteHeader(status)
}

// Write implements http.ResponseWriter.
func (w *statusWriter) Write(b []byte) (int, error) {
	if w.call.status == 0 {
		w.call.status = http.StatusOK
	}
	return w.ResponseWriter.Write(b)
}

// Unwrap returns the underlying writer.
func (w *statusWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }
