//go:build unix

// Package envoy_test tests regiond behind a model of Envoy's ext_authz: it reads
// envoy.yaml and calls the real regiond as the filter's documentation says. Envoy
// itself is not run.
package envoy_test

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

func TestBehindEnvoy(t *testing.T) { example().Run(t) }

func example() gateway.Example {
	return gateway.Example{
		Launch:       launch,
		LongTimeouts: []gateway.Edit{{Old: "timeout: 0.1s # regiond", New: "timeout: 10s # regiond"}},
		Opposite:     []gateway.Edit{{Old: "failure_mode_allow: true", New: "failure_mode_allow: false"}},
		NoTenant:     []gateway.Edit{{Old: "                          - {exact: x-tenant}\n"}},
		DownStatus:   http.StatusServiceUnavailable,
		Timeout:      100 * time.Millisecond,
		NoChallenge:  true,
		OwnPage:      true,
		// A 5xx alone is a failure of regiond. Any other refusal goes to the customer as it is.
		Statuses: map[int]int{
			200: 200, 204: 204,
			500: 200, 502: 200, 503: 200, 504: 200,
			400: 400, 404: 404, 431: 431, 302: 302,
		},
	}
}

// config is the part of envoy.yaml that the model uses.
type config struct {
	StaticResources struct {
		Listeners []struct {
			FilterChains []struct {
				Filters []struct {
					TypedConfig manager `yaml:"typed_config"`
				}
			} `yaml:"filter_chains"`
		}
	} `yaml:"static_resources"`
}

type manager struct {
	Type               string `yaml:"@type"`
	UseRemoteAddress   bool   `yaml:"use_remote_address"`
	CommonHTTPProtocol struct {
		Underscores string `yaml:"headers_with_underscores_action"`
	} `yaml:"common_http_protocol_options"`
	HTTPFilters []struct {
		Name        string
		TypedConfig filter `yaml:"typed_config"`
	} `yaml:"http_filters"`
}

// filter has the fields of all filters that the example uses.
type filter struct {
	Mutations struct {
		Request []struct{ Remove string } `yaml:"request_mutations"`
	}
	Credentials []struct{ Key, Client string }
	KeySources  []struct{ Header string } `yaml:"key_sources"`
	Forwarding  struct{ Header string }

	FailureModeAllow bool                  `yaml:"failure_mode_allow"`
	StatusOnError    struct{ Code string } `yaml:"status_on_error"`
	AllowedHeaders   matchers              `yaml:"allowed_headers"`
	HTTPService      struct {
		ServerURI struct {
			URI, Cluster string
			Timeout      string
		} `yaml:"server_uri"`
		PathPrefix string `yaml:"path_prefix"`
		Response   struct {
			Refused matchers `yaml:"allowed_client_headers"`
			Allowed matchers `yaml:"allowed_client_headers_on_success"`
		} `yaml:"authorization_response"`
	} `yaml:"http_service"`
}

type matchers struct{ Patterns []struct{ Exact string } }

func (m matchers) match(field string) bool {
	return slices.ContainsFunc(m.Patterns, func(p struct{ Exact string }) bool { return strings.EqualFold(p.Exact, field) })
}

// step is one filter: it reports whether the request goes on to the next.
type step func(w http.ResponseWriter, r *http.Request) bool

func launch(t *testing.T, regiond, app string, edits ...gateway.Edit) (string, *gateway.Process) {
	t.Helper()
	m := read(t, edits)
	var steps []step
	for _, f := range m.HTTPFilters {
		switch f.Name {
		case "envoy.filters.http.header_mutation":
			steps = append(steps, f.TypedConfig.mutate)
		case "envoy.filters.http.api_key_auth":
			steps = append(steps, f.TypedConfig.authenticate)
		case "envoy.filters.http.ext_authz":
			steps = append(steps, f.TypedConfig.authorize(t, regiond))
		case "envoy.filters.http.router":
		default:
			t.Fatalf("envoy.yaml has a filter %q that this test does not know", f.Name)
		}
	}
	router := gateway.Proxy(app)
	return gateway.Serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for field := range r.Header {
			if strings.Contains(field, "_") && m.CommonHTTPProtocol.Underscores == "DROP_HEADER" {
				delete(r.Header, field)
			}
		}
		if m.UseRemoteAddress {
			gateway.AppendForwardedFor(r)
		}
		for _, s := range steps {
			if !s(w, r) {
				return
			}
		}
		router.ServeHTTP(w, r)
	})), nil
}

func read(t *testing.T, edits []gateway.Edit) manager {
	t.Helper()
	var c config
	gateway.ReadYAML(t, "envoy.yaml", &c, edits...)
	return c.StaticResources.Listeners[0].FilterChains[0].Filters[0].TypedConfig
}

func (f filter) mutate(_ http.ResponseWriter, r *http.Request) bool {
	for _, m := range f.Mutations.Request {
		r.Header.Del(m.Remove)
	}
	return true
}

func (f filter) authenticate(w http.ResponseWriter, r *http.Request) bool {
	for _, c := range f.Credentials {
		if r.Header.Get(f.KeySources[0].Header) == c.Key {
			r.Header.Set(f.Forwarding.Header, c.Client)
			return true
		}
	}
	http.Error(w, "Client authentication failed.", http.StatusUnauthorized)
	return false
}

// authorize is ext_authz over HTTP: the request's own method, its path below the
// prefix, no body; 200 alone allows; a 5xx or no response is a failure of the
// service; any other response is passed on.
func (f filter) authorize(t *testing.T, regiond string) step {
	t.Helper()
	timeout, err := time.ParseDuration(f.HTTPService.ServerURI.Timeout)
	if err != nil {
		t.Fatalf("envoy.yaml: timeout of server_uri: %v", err)
	}
	return func(w http.ResponseWriter, r *http.Request) bool {
		header := http.Header{}
		for field, values := range r.Header {
			if field == "Authorization" || f.AllowedHeaders.match(field) {
				header[field] = values
			}
		}
		reply, err := gateway.Call(r, regiond, r.Method, f.HTTPService.PathPrefix+r.RequestURI, header, timeout)
		switch {
		case err != nil || reply.Status >= 500:
			if !f.FailureModeAllow {
				w.WriteHeader(map[string]int{"ServiceUnavailable": http.StatusServiceUnavailable}[f.StatusOnError.Code])
			}
			return f.FailureModeAllow
		case reply.Status != http.StatusOK:
			reply.Relay(w, f.HTTPService.Response.Refused.match)
			return false
		}
		for field, values := range reply.Header {
			if f.HTTPService.Response.Allowed.match(field) {
				w.Header()[field] = values
			}
		}
		return true
	}
}

// TestFile: the order of the filters puts authentication before the check.
func TestFile(t *testing.T) {
	m := read(t, nil)
	var order []string
	for _, f := range m.HTTPFilters {
		order = append(order, strings.TrimPrefix(f.Name, "envoy.filters.http."))
	}
	if want := []string{"header_mutation", "api_key_auth", "ext_authz", "router"}; !slices.Equal(order, want) {
		t.Fatalf("filters are %q, want %q", order, want)
	}
	f := m.HTTPFilters[2].TypedConfig
	if f.HTTPService.PathPrefix != "/v1/authz" || f.HTTPService.ServerURI.Cluster != "regiond" || f.StatusOnError.Code != "ServiceUnavailable" {
		t.Errorf("ext_authz calls %q of cluster %q and fails with %q", f.HTTPService.PathPrefix, f.HTTPService.ServerURI.Cluster, f.StatusOnError.Code)
	}
	for _, field := range []string{"X-Tenant", "X-Forwarded-For", "Traceparent"} {
		if !f.AllowedHeaders.match(field) {
			t.Errorf("ext_authz does not send %s", field)
		}
	}
	for _, field := range []string{"Retry-After", "RateLimit", "RateLimit-Policy", "Content-Type"} {
		if !f.HTTPService.Response.Refused.match(field) {
			t.Errorf("a refused client does not get %s", field)
		}
	}
}
