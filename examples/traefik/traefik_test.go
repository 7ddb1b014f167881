//go:build unix

// Package traefik_test tests regiond behind a model of Traefik's forwardAuth: it
// reads dynamic.yaml and calls the real regiond as Traefik's documentation says.
// Traefik itself is not run.
package traefik_test

import (
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/crypto/bcrypt"

	"github.com/regiond/regiond/test/gateway"
	"github.com/regiond/regiond/test/leaks"
)

func TestMain(m *testing.M) { leaks.Main(m) }

func TestBehindTraefik(t *testing.T) { example().Run(t) }

func example() gateway.Example {
	return gateway.Example{
		Launch: launch,
		Authenticate: func(req *http.Request, tenant string) {
			req.SetBasicAuth(tenant, "demo-password-"+tenant)
		},
		NoTenant:    []gateway.Edit{{Old: "          - X-Tenant\n", New: "          - X-Nothing\n"}},
		Closed:      true,
		DownStatus:  http.StatusInternalServerError,
		NoRateLimit: true,
		OwnPage:     true,
		// Every response but 2xx goes to the customer as it is.
		Statuses: map[int]int{200: 200, 500: 500, 503: 503, 400: 400, 404: 404, 302: 302},
	}
}

// config is the part of the file that the model uses.
type config struct {
	HTTP struct {
		Routers struct {
			API struct {
				Middlewares []string
				Service     string
			}
		}
		Middlewares struct {
			Aliases struct {
				Headers struct {
					Request map[string]string `yaml:"customRequestHeaders"`
				}
			}
			Customers struct {
				BasicAuth struct {
					Users        []string
					HeaderField  string `yaml:"headerField"`
					RemoveHeader bool   `yaml:"removeHeader"`
				} `yaml:"basicAuth"`
			}
			Regiond struct {
				ForwardAuth struct {
					Address            string
					TrustForwardHeader bool     `yaml:"trustForwardHeader"`
					AuthRequestHeaders []string `yaml:"authRequestHeaders"`
				} `yaml:"forwardAuth"`
			}
		}
	}
}

func read(t *testing.T, edits []gateway.Edit) (c config) {
	t.Helper()
	gateway.ReadYAML(t, "dynamic.yaml", &c, edits...)
	return c
}

// forwardAuthTimeout is Traefik's own; no option changes it.
const forwardAuthTimeout = 30 * time.Second

func launch(t *testing.T, regiond, app string, edits ...gateway.Edit) (string, *gateway.Process) {
	t.Helper()
	c := read(t, edits)
	service := gateway.Proxy(app)
	return gateway.Serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for field := range r.Header { // the entry point trusts no proxy
			if strings.HasPrefix(field, "X-Forwarded-") || field == "X-Real-Ip" {
				delete(r.Header, field)
			}
		}
		for field, value := range c.HTTP.Middlewares.Aliases.Headers.Request {
			r.Header.Del(field)
			if value != "" {
				r.Header.Set(field, value)
			}
		}
		if c.authenticate(w, r) && c.authorize(w, r, regiond) {
			r.Header.Set("X-Forwarded-For", gateway.Peer(r))
			service.ServeHTTP(w, r)
		}
	})), nil
}

// authenticate is basicAuth without the slow hash: TestPasswords checks the
// file's hashes.
func (c config) authenticate(w http.ResponseWriter, r *http.Request) bool {
	auth := c.HTTP.Middlewares.Customers.BasicAuth
	user, password, _ := r.BasicAuth()
	if password != "demo-password-"+user || !slices.ContainsFunc(auth.Users, func(line string) bool { return strings.HasPrefix(line, user+":") }) {
		w.Header().Set("WWW-Authenticate", `Basic realm="traefik"`)
		http.Error(w, "401 Unauthorized", http.StatusUnauthorized)
		return false
	}
	r.Header.Set(auth.HeaderField, user)
	if auth.RemoveHeader {
		r.Header.Del("Authorization")
	}
	return true
}

// authorize is forwardAuth: a GET of a fixed address, the request described in
// X-Forwarded-*; 2xx allows and is not passed on; any other response is; no
// response is a 500.
func (c config) authorize(w http.ResponseWriter, r *http.Request, regiond string) bool {
	auth := c.HTTP.Middlewares.Regiond.ForwardAuth
	header := http.Header{}
	for _, field := range auth.AuthRequestHeaders {
		if values := r.Header.Values(field); len(values) > 0 {
			header[http.CanonicalHeaderKey(field)] = values
		}
	}
	header.Set("X-Forwarded-For", gateway.Peer(r))
	header.Set("X-Forwarded-Method", r.Method)
	header.Set("X-Forwarded-Proto", "http")
	header.Set("X-Forwarded-Host", r.Host)
	header.Set("X-Forwarded-Uri", r.RequestURI)
	_, path, _ := strings.Cut(strings.TrimPrefix(auth.Address, "http://"), "/")
	reply, err := gateway.Call(r, regiond, http.MethodGet, "/"+path, header, forwardAuthTimeout)
	if err != nil {
		w.WriteHeader(http.StatusInternalServerError)
		return false
	}
	if reply.Status < 200 || reply.Status >= 300 {
		reply.Relay(w, nil)
		return false
	}
	return true
}

func TestFile(t *testing.T) {
	c := read(t, nil)
	if got, want := c.HTTP.Routers.API.Middlewares, []string{"aliases", "customers", "regiond"}; !slices.Equal(got, want) {
		t.Errorf("middlewares are %q, want %q: authentication comes before the check", got, want)
	}
	auth := c.HTTP.Middlewares.Regiond.ForwardAuth
	if !strings.HasSuffix(auth.Address, "/v1/authz") || auth.TrustForwardHeader || !slices.Equal(auth.AuthRequestHeaders, []string{"X-Tenant"}) {
		t.Errorf("forwardAuth reads %+v", auth)
	}
	if basic := c.HTTP.Middlewares.Customers.BasicAuth; basic.HeaderField != "X-Tenant" {
		t.Errorf("the user is sent in %q, want X-Tenant", basic.HeaderField)
	}
	var static struct {
		Providers struct{ File struct{ Filename string } }
	}
	gateway.ReadYAML(t, "traefik.yaml", &static)
	if static.Providers.File.Filename != "dynamic.yaml" {
		t.Errorf("traefik.yaml reads %q, want dynamic.yaml", static.Providers.File.Filename)
	}
}

func TestPasswords(t *testing.T) {
	users := read(t, nil).HTTP.Middlewares.Customers.BasicAuth.Users
	if len(users) != 3 {
		t.Errorf("there are %d users, want 3", len(users))
	}
	for _, line := range users {
		user, hash, _ := strings.Cut(line, ":")
		if err := bcrypt.CompareHashAndPassword([]byte(hash), []byte("demo-password-"+user)); err != nil {
			t.Errorf("the password of %s is not demo-password-%s: %v", user, user, err)
		}
	}
}
