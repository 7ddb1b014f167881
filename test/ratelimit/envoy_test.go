package ratelimit_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	bootstrap "github.com/envoyproxy/go-control-plane/envoy/config/bootstrap/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/api_key_auth/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/ext_authz/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/header_mutation/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/ratelimit/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/router/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/upstreams/http/v3"
	"github.com/goccy/go-yaml"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protopath"
	"google.golang.org/protobuf/reflect/protorange"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/regiond/regiond/test/gateway"
	"github.com/regiond/regiond/test/redisserver"
)

// TestEnvoyConfigurations: Envoy's own types take the shipped configurations, with every field
// that is in them and every rule of their values.
func TestEnvoyConfigurations(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("../../examples/envoy/envoy*.yaml")
	if err != nil || len(files) < 2 {
		t.Fatal(files, err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if err := readEnvoy(text); err != nil {
			t.Errorf("%s: %v", file, err)
		}
		for _, broken := range [][2]string{
			{"stat_prefix: api", "stat_prefix: \"\""},
			{"connect_timeout: 0.1s", "connect_timeout: -1s"},
			{"use_remote_address", "use_remote_addresses"},
			{"transport_api_version: V3", "transport_api_version: V9"},
			{"router.v3.Router", "router.v3.Routers"},
		} {
			if !strings.Contains(string(text), broken[0]) {
				t.Errorf("%s has no %s", file, broken[0])
			} else if readEnvoy([]byte(strings.Replace(string(text), broken[0], broken[1], 1))) == nil {
				t.Errorf("%s passes with %s", file, broken[1])
			}
		}
	}
}

// readEnvoy reads a configuration, and the extensions in it.
func readEnvoy(text []byte) error {
	var c any
	if err := yaml.Unmarshal(text, &c); err != nil {
		return err
	}
	object, err := json.Marshal(c)
	if err != nil {
		return err
	}
	var b bootstrap.Bootstrap
	if err := protojson.Unmarshal(object, &b); err != nil {
		return err
	}
	if err := b.ValidateAll(); err != nil {
		return err
	}
	// It visits the message in each Any too.
	return protorange.Range(b.ProtoReflect(), func(p protopath.Values) error {
		if m, ok := p.Index(-1).Value.Interface().(interface{ Interface() proto.Message }); ok {
			if a, ok := m.Interface().(*anypb.Any); ok {
				own, err := a.UnmarshalNew()
				if err != nil {
					return err
				}
				if v, ok := own.(interface{ ValidateAll() error }); ok {
					return v.ValidateAll()
				}
			}
		}
		return nil
	})
}

// TestGrpcurl: a person finds the services by reflection and asks them.
func TestGrpcurl(t *testing.T) {
	t.Parallel()
	binary := filepath.Join(t.TempDir(), "grpcurl")
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", binary, "github.com/fullstorydev/grpcurl/cmd/grpcurl").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	s := startOurs(t, gateway.Build(t, "../.."), redisserver.Start(t, redisserver.Options{}).Addr(), []domain{{
		"edge", "domain: edge\ndescriptors: [{key: user, rate_limit: {name: person, unit: hour, requests_per_unit: 2}}]\n", "",
	}})
	run := func(args ...string) string {
		t.Helper()
		out, err := exec.CommandContext(t.Context(), binary, append([]string{"-plaintext"}, args...)...).CombinedOutput()
		if err != nil {
			t.Fatalf("grpcurl %v: %v\n%s", args, err, out)
		}
		return string(out)
	}
	const service = "envoy.service.ratelimit.v3.RateLimitService"
	for want, said := range map[string]string{
		service + "\n":                          run(s.addr, "list"),
		"envoy.service.auth.v3.Authorization\n": run(s.addr, "list"),
		"rpc ShouldRateLimit ":                  run(s.addr, "describe", service),
		`"status": "SERVING"`:                   run("-d", `{"service": "ratelimit"}`, s.addr, "grpc.health.v1.Health/Check"),
		"hits_addend":                           run(s.addr, "describe", "envoy.service.ratelimit.v3.RateLimitRequest"),
	} {
		if !strings.Contains(said, want) {
			t.Errorf("grpcurl says %q, without %q", said, want)
		}
	}
	for i, want := range []string{`"overallCode": "OK"`, `"overallCode": "OK"`, `"overallCode": "OVER_LIMIT"`} {
		said := run("-d", `{"domain": "edge", "descriptors": [{"entries": [{"key": "user", "value": "42"}]}]}`, s.addr, service+"/ShouldRateLimit")
		if !strings.Contains(said, want) || !strings.Contains(said, `"name": "person"`) {
			t.Errorf("request %d: %s, want %s", i, said, want)
		}
	}
}
