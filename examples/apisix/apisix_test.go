//go:build unix

// Package apisix_test tests regiond behind a model of APISIX's forward-auth: it
// reads apisix.yaml and calls the real regiond as the plugin's source does. APISIX
// itself is not run.
package apisix_test

import (
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/regiond/regiond/test/gateway"
	"github.com/regiond/regiond/test/leaks"
)

func TestMain(m *testing.M) { leaks.Main(m) }

func TestBehindAPISIX(t *testing.T) { example().Run(t) }

func example() gateway.Example {
	return gateway.Example{
		Launch:       launch,
		LongTimeouts: []gateway.Edit{{Old: "timeout: 100 #", New: "timeout: 10000 #"}},
		Opposite:     []gateway.Edit{{Old: "allow_degradation: true", New: "allow_degradation: false"}},
		NoTenant:     []gateway.Edit{{Old: "extra_headers: {X-Tenant: $consumer_name}", New: "extra_headers: {X-Nothing: $consumer_name}"}},
		DownStatus:   http.StatusServiceUnavailable,
		Timeout:      100 * time.Millisecond,
		NoRateLimit:  true,
		NoChallenge:  true,
		OwnPage:      true,
		// Every response from 300 on goes to the customer, also a 5xx.
		Statuses: map[int]int{200: 200, 500: 500, 503: 503, 400: 400, 404: 404, 302: 302},
	}
}

// config is the part of the file that the model uses.
type config struct {
	Routes []struct {
		URI     string
		Plugins struct {
			KeyAuth struct {
				Header          string
				HideCredentials bool `yaml:"hide_credentials"`
			} `yaml:"key-auth"`
			ForwardAuth  forwardAuth `yaml:"forward-auth"`
			ProxyRewrite struct {
				Headers struct {
					Set    map[string]string
					Remove []string
				}
			} `yaml:"proxy-rewrite"`
		}
	}
	Consumers []struct {
		Username string
		Plugins  struct {
			KeyAuth struct{ Key string } `yaml:"key-auth"`
		}
	}
}

type forwardAuth struct {
	URI              string
	RequestMethod    string            `yaml:"request_method"`
	RequestHeaders   []string          `yaml:"request_headers"`
	ExtraHeaders     map[string]string `yaml:"extra_headers"`
	ClientHeaders    []string          `yaml:"client_headers"`
	Timeout          int               // milliseconds
	AllowDegradation bool              `yaml:"allow_degradation"`
	StatusOnError    int               `yaml:"status_on_error"`
}

func read(t *testing.T, edits []gateway.Edit) (c config) {
	t.Helper()
	gateway.ReadYAML(t, "apisix.yaml", &c, edits...)
	return c
}

func launch(t *testing.T, regiond, app string, edits ...gateway.Edit) (string, *gateway.Process) {
	t.Helper()
	c := read(t, edits)
	plugins := c.Routes[0].Plugins
	upstream := gateway.Proxy(app)
	return gateway.Serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		consumer, ok := c.consumer(r.Header.Get(plugins.KeyAuth.Header))
		if !ok {
			http.Error(w, `{"message":"Invalid API key in request"}`, http.StatusUnauthorized)
			return
		}
		if plugins.KeyAuth.HideCredentials {
			r.Header.Del(plugins.KeyAuth.Header)
		}
		if !plugins.ForwardAuth.authorize(w, r, regiond, consumer) {
			return
		}
		for field, value := range plugins.ProxyRewrite.Headers.Set {
			r.Header.Set(field, resolve(value, consumer))
		}
		for _, field := range plugins.ProxyRewrite.Headers.Remove {
			r.Header.Del(field)
		}
		gateway.AppendForwardedFor(r)
		upstream.ServeHTTP(w, r)
	})), nil
}

func (c config) consumer(key string) (name string, ok bool) {
	for _, consumer := range c.Consumers {
		if key == consumer.Plugins.KeyAuth.Key {
			return consumer.Username, true
		}
	}
	return "", false
}

// resolve fills in the one variable that the example uses.
func resolve(value, consumer string) string {
	return strings.ReplaceAll(value, "$consumer_name", consumer)
}

// authorize is forward-auth: a GET of a fixed address, the request described in
// X-Forwarded-*, extra_headers before the client's; below 300 allows; any other
// response is passed on with the listed fields; no response allows or refuses, as
// the file says.
func (f forwardAuth) authorize(w http.ResponseWriter, r *http.Request, regiond, consumer string) bool {
	header := http.Header{
		"X-Forwarded-Proto": {"http"}, "X-Forwarded-Method": {r.Method}, "X-Forwarded-Host": {r.Host},
		"X-Forwarded-Uri": {r.RequestURI}, "X-Forwarded-For": {gateway.Peer(r)},
	}
	for field, value := range f.ExtraHeaders {
		header.Set(field, resolve(value, consumer))
	}
	for _, field := range f.RequestHeaders {
		if value := r.Header.Get(field); header.Get(field) == "" && value != "" {
			header.Set(field, value)
		}
	}
	_, path, _ := strings.Cut(strings.TrimPrefix(f.URI, "http://"), "/")
	reply, err := gateway.Call(r, regiond, http.MethodGet, "/"+path, header, time.Duration(f.Timeout)*time.Millisecond)
	if err != nil {
		if !f.AllowDegradation {
			w.WriteHeader(f.StatusOnError)
		}
		return f.AllowDegradation
	}
	if reply.Status >= 300 {
		reply.Relay(w, func(field string) bool {
			return slices.ContainsFunc(f.ClientHeaders, func(kept string) bool { return strings.EqualFold(kept, field) })
		})
		return false
	}
	return true
}

func TestFile(t *testing.T) {
	f := read(t, nil).Routes[0].Plugins.ForwardAuth
	if !strings.HasSuffix(f.URI, "/v1/authz") || f.ExtraHeaders["X-Tenant"] != "$consumer_name" || f.RequestMethod != "" {
		t.Errorf("forward-auth calls %q with %v by method %q, want /v1/authz with the consumer as X-Tenant by GET", f.URI, f.ExtraHeaders, f.RequestMethod)
	}
	if len(f.RequestHeaders) != 0 {
		t.Errorf("forward-auth sends the client's own %q; it needs none", f.RequestHeaders)
	}
	for _, field := range []string{"Retry-After", "RateLimit", "RateLimit-Policy", "Content-Type"} {
		if !slices.Contains(f.ClientHeaders, field) {
			t.Errorf("a refused client does not get %s", field)
		}
	}
	if !strings.HasSuffix(gateway.Read(t, "apisix.yaml"), "\n#END\n") {
		t.Error("apisix.yaml does not end with #END; APISIX would not read it")
	}
	var deployment struct {
		Deployment struct {
			Role string
			Data struct {
				Provider string `yaml:"config_provider"`
			} `yaml:"role_data_plane"`
		}
	}
	gateway.ReadYAML(t, "config.yaml", &deployment)
	if d := deployment.Deployment; d.Role != "data_plane" || d.Data.Provider != "yaml" {
		t.Errorf("config.yaml has %+v", d)
	}
}
