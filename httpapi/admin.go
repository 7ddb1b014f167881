package httpapi

import (
	_ "embed"
	"fmt"
	"net/http"
	"net/http/pprof"
	"strings"

	"github.com/regiond/regiond/quota"
)

// healthz reports that the process answers. It does not depend on Redis, which a
// restart would not bring back.
func (c *call) healthz() { c.write(http.StatusOK, c.json, []byte("{\"status\":\"ok\"}\n")) }

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
	c.write(status, c.json, append(c.out, '\n'))
}

// regions serves GET /v1/regions.
func (c *call) regions() {
	c.out = appendValue(c.out[:0], c.Regions())
	c.write(http.StatusOK, c.json, append(c.out, '\n'))
}

// reset serves DELETE /v1/usage/{tenant}. It refuses parameters: a caller might
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
	if c.r.URL.RawQuery != "" {
		errs = append(errs, quota.FieldError{Detail: "unexpected query"})
	}
	if len(errs) > 0 {
		c.refuse(invalid(quota.FaultInput, errs))
		return
	}
	if !c.mayName(tenant) {
		return
	}
	if err := c.Limiter.Reset(c.within(ResetTimeout), tenant); err != nil {
		c.failed(err, "not reset", fmt.Sprintf("The usage was deleted in part or not at all: the store is unavailable, "+
			"or has more keys than can be scanned in %v. The log has the reason.", ResetTimeout))
		return
	}
	c.logReset(tenant)
	c.write(http.StatusNoContent, nil, nil)
}

// scrape serves GET /metrics.
func (c *call) scrape() { c.mounted(c.Metrics) }

// pprof serves /debug/pprof/.
func (c *call) pprof() {
	page, ok := map[string]http.HandlerFunc{
		"cmdline": pprof.Cmdline, "profile": pprof.Profile, "symbol": pprof.Symbol, "trace": pprof.Trace,
	}[strings.TrimPrefix(c.r.URL.Path, "/debug/pprof/")]
	if !ok {
		page = pprof.Index
	}
	c.mounted(page)
}

//go:embed openapi.yaml
var openapiYAML []byte

// openapi serves GET /v1/openapi.yaml to anyone: it contains nothing secret.
func (c *call) openapi() {
	c.write(http.StatusOK, []string{"application/yaml"}, openapiYAML)
}

// mounted lets another handler answer.
func (c *call) mounted(h http.Handler) {
	c.w.Header()["Cache-Control"] = c.noStore
	h.ServeHTTP(&statusWriter{ResponseWriter: c.w, call: c}, c.r)
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
