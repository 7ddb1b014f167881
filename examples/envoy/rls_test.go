//go:build unix

package envoy_test

import (
	"context"
	"testing"
	"time"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	ratelimit "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/regiond/regiond/test/gateway"
)

const perUser, perAddress = 20, 5 // a minute, in ratelimit.yaml

// asker is the filter of envoy-rls.yaml, with a stock client of the service.
type asker struct {
	ratelimit.RateLimitServiceClient
	domain string
	routes []route
}

// route is what the filter uses of one.
type route struct {
	Match struct{ Path string }
	Route struct {
		RateLimits []struct {
			Actions []struct {
				RequestHeaders *struct {
					DescriptorKey string `yaml:"descriptor_key"`
				} `yaml:"request_headers"`
				GenericKey *struct {
					DescriptorValue string `yaml:"descriptor_value"`
				} `yaml:"generic_key"`
				RemoteAddress *struct{} `yaml:"remote_address"`
			}
		} `yaml:"rate_limits"`
	}
}

// readRLS reads what the filter uses of envoy-rls.yaml.
func readRLS(t *testing.T) (domain string, routes []route) {
	t.Helper()
	var c struct {
		StaticResources struct {
			Listeners []struct {
				FilterChains []struct {
					Filters []struct {
						TypedConfig struct {
							RouteConfig struct {
								VirtualHosts []struct{ Routes []route } `yaml:"virtual_hosts"`
							} `yaml:"route_config"`
							HTTPFilters []struct {
								Name        string
								TypedConfig struct{ Domain string } `yaml:"typed_config"`
							} `yaml:"http_filters"`
						} `yaml:"typed_config"`
					}
				} `yaml:"filter_chains"`
			}
		} `yaml:"static_resources"`
	}
	gateway.ReadYAML(t, "envoy-rls.yaml", &c)
	m := c.StaticResources.Listeners[0].FilterChains[0].Filters[0].TypedConfig
	for _, f := range m.HTTPFilters {
		if f.Name == "envoy.filters.http.ratelimit" {
			return f.TypedConfig.Domain, m.RouteConfig.VirtualHosts[0].Routes
		}
	}
	t.Fatal("envoy-rls.yaml has no rate limit filter")
	return "", nil
}

func newAsker(t *testing.T, addr string) *asker {
	t.Helper()
	c, err := grpc.NewClient(addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	a := &asker{RateLimitServiceClient: ratelimit.NewRateLimitServiceClient(c)}
	a.domain, a.routes = readRLS(t)
	return a
}

// descriptors are those of a request, as Envoy makes them.
func (a *asker) descriptors(t *testing.T, path, user, address string) (all []*common.RateLimitDescriptor) {
	t.Helper()
	for _, r := range a.routes {
		if r.Match.Path != "" && r.Match.Path != path {
			continue
		}
		for _, limit := range r.Route.RateLimits {
			d := &common.RateLimitDescriptor{}
			add := func(key, value string) {
				d.Entries = append(d.Entries, &common.RateLimitDescriptor_Entry{Key: key, Value: value})
			}
			for _, action := range limit.Actions {
				switch {
				case action.RequestHeaders != nil:
					add(action.RequestHeaders.DescriptorKey, user)
				case action.GenericKey != nil:
					add("generic_key", action.GenericKey.DescriptorValue)
				case action.RemoteAddress != nil:
					add("remote_address", address)
				default:
					t.Fatalf("envoy-rls.yaml has an action that this test does not know: %v", action)
				}
			}
			all = append(all, d)
		}
		return all
	}
	t.Fatalf("no route for %s", path)
	return nil
}

// passes reports whether a request passes.
func (a *asker) passes(t *testing.T, path, user, address string) bool {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	answer, err := a.ShouldRateLimit(ctx, &ratelimit.RateLimitRequest{Domain: a.domain, Descriptors: a.descriptors(t, path, user, address)})
	if err != nil {
		t.Fatal(err)
	}
	return answer.GetOverallCode() == ratelimit.RateLimitResponse_OK
}

// TestRateLimitService: the shipped files answer a stock client of the service.
func TestRateLimitService(t *testing.T) {
	if testing.Short() {
		t.Skip("it builds the program")
	}
	a := newAsker(t, gateway.StartRegiond(t, gateway.Build(t, "../.."), "topology.yaml").GRPC)
	for i := range perAddress + 1 {
		if got, want := a.passes(t, "/login", "acme", "192.0.2.1"), i < perAddress; got != want {
			t.Fatalf("login %d passes: %t", i+1, got)
		}
	}
	if !a.passes(t, "/login", "acme", "192.0.2.2") {
		t.Error("another address is refused")
	}
	passed := 0
	for range perUser {
		if a.passes(t, "/", "globex", "192.0.2.1") {
			passed++
		}
	}
	if passed != perUser || a.passes(t, "/", "globex", "192.0.2.1") {
		t.Errorf("%d requests of a user passed, and then one more or none; want %d", passed, perUser)
	}
}
