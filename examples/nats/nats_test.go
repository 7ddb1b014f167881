// Package nats_test tests the configuration of this folder.
package nats_test

import (
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
)

// load reads nats.conf as nats-server does, on free ports of this host.
func load(t *testing.T) *server.Options {
	t.Helper()
	t.Setenv("NATS_PASSWORD", "secret")
	t.Setenv("GATEWAY_PASSWORD", "other")
	t.Setenv("US_EAST_GATEWAY", "nats://gateway:other@127.0.0.1:1")
	t.Setenv("AP_SOUTH_GATEWAY", "nats://gateway:other@127.0.0.1:2")
	o, err := server.ProcessConfigFile("nats.conf")
	if err != nil {
		t.Fatal(err)
	}
	o.Host, o.Port, o.Gateway.Host, o.Gateway.Port = "127.0.0.1", server.RANDOM_PORT, "127.0.0.1", server.RANDOM_PORT
	o.NoLog, o.NoSigs = true, true
	return o
}

// start runs a server on nats.conf until the test ends.
func start(t *testing.T) *server.Server {
	t.Helper()
	s, err := server.NewServer(load(t))
	if err != nil {
		t.Fatal(err)
	}
	s.Start()
	t.Cleanup(func() {
		s.Shutdown()
		s.WaitForShutdown()
	})
	if !s.ReadyForConnections(10 * time.Second) {
		t.Fatal("the server does not listen")
	}
	return s
}

func TestSettings(t *testing.T) {
	o := load(t)
	if o.PingInterval != time.Second || o.MaxPingsOut != 2 || o.WriteDeadline != 2*time.Second {
		t.Errorf("pings every %v, %d missed, writes within %v", o.PingInterval, o.MaxPingsOut, o.WriteDeadline)
	}
	if o.MaxPayload != 1<<20 || o.JetStream || len(o.Gateway.Gateways) != 2 || !o.Gateway.RejectUnknown {
		t.Errorf("payload %d, JetStream %v, gateways %d, reject unknown %v", o.MaxPayload, o.JetStream, len(o.Gateway.Gateways), o.Gateway.RejectUnknown)
	}
}

// TestReload: what docs/operate.md says of a new region. A user may be changed by a reload, a gateway needs a restart.
func TestReload(t *testing.T) {
	s := start(t)
	users, gateways := load(t), load(t)
	users.Users[0].Password = "changed"
	if err := s.ReloadOptions(users); err != nil {
		t.Errorf("another password: %v", err)
	}
	gateways.Gateway.Gateways = append(gateways.Gateway.Gateways, &server.RemoteGatewayOpts{Name: "sa-east", URLs: gateways.Gateway.Gateways[0].URLs})
	if err := s.ReloadOptions(gateways); err == nil || !strings.Contains(err.Error(), "not supported for Gateway") {
		t.Errorf("another gateway: %v, want a refusal", err)
	}
}
