//go:build unix

package deploy_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	meshsync "github.com/regiond/regiond/sync"
)

// natsFiles are the files that are shipped for NATS, read as the server of eu-west reads them.
var natsFiles = map[string]func(t *testing.T) *server.Options{
	"nats.conf": func(t *testing.T) *server.Options {
		dir := t.TempDir()
		text, err := os.ReadFile("nats.conf")
		if err != nil {
			t.Fatal(err)
		}
		for name, content := range map[string]string{
			"etc/nats/nats.conf":       string(text),
			"run/secrets/nats-gateway": `gateway_password: "gateway-secret"`,
			"run/secrets/nats-user":    `nats_password: "eu-secret"`,
		} {
			file := filepath.Join(dir, name)
			if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
				t.Fatal(err)
			}
			write(t, file, content)
		}
		return natsOptions(t, filepath.Join(dir, "etc/nats/nats.conf"), map[string]string{
			"REGION": "eu-west", "CLIENT_HOST": "127.0.0.1", "GATEWAY_ADVERTISE": "127.0.0.1:7222",
			"USAGE": meshsync.SubjectUsage + "eu-west", "HEARTBEAT": meshsync.SubjectHeartbeat + "eu-west",
			"SNAPSHOT": meshsync.SubjectSnapshot + "eu-west", "LOAN": meshsync.SubjectLoan + "eu-west.*",
			"RESET": meshsync.SubjectReset + "eu-west", "TOP": meshsync.SubjectTop + "eu-west",
		})
	},
	"../examples/nats/nats.conf": func(t *testing.T) *server.Options {
		const other = "nats://gateway:gateway-secret@127.0.0.1:1"
		return natsOptions(t, "../examples/nats/nats.conf", map[string]string{
			"NATS_PASSWORD": "eu-secret", "GATEWAY_PASSWORD": "gateway-secret", "US_EAST_GATEWAY": other, "AP_SOUTH_GATEWAY": other,
		})
	},
}

func natsOptions(t *testing.T, file string, environment map[string]string) *server.Options {
	t.Helper()
	for name, value := range environment {
		t.Setenv(name, value)
	}
	o, err := server.ProcessConfigFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return o
}

// eachNATS runs a test against a server of each file, on free ports of this host and without its gateways.
func eachNATS(t *testing.T, test func(t *testing.T, url string)) {
	for file, read := range natsFiles {
		t.Run(file, func(t *testing.T) {
			o := read(t)
			o.Host, o.Port, o.HTTPPort, o.Gateway, o.NoLog, o.NoSigs = "127.0.0.1", server.RANDOM_PORT, 0, server.GatewayOpts{}, true, true
			s, err := server.NewServer(o)
			if err != nil {
				t.Fatal(err)
			}
			s.Start()
			defer s.WaitForShutdown()
			defer s.Shutdown()
			if !s.ReadyForConnections(10 * time.Second) {
				t.Fatal("the server does not listen")
			}
			test(t, s.ClientURL())
		})
	}
}

// TestNATSRefusesNeighbours: whoever reaches a region's NATS and does not have the password
// of that region's user is refused.
func TestNATSRefusesNeighbours(t *testing.T) { eachNATS(t, refusesNeighbours) }

func refusesNeighbours(t *testing.T, url string) {
	for name, option := range map[string]nats.Option{
		"no password":                   nats.Name("neighbour"),
		"the user and no password":      nats.UserInfo("eu-west", ""),
		"another password":              nats.UserInfo("eu-west", "us-secret"),
		"the user of gateways":          nats.UserInfo("gateway", "gateway-secret"),
		"another region's name":         nats.UserInfo("us-east", "eu-secret"),
		"the password of gateways":      nats.UserInfo("eu-west", "gateway-secret"),
		"the placeholder as the secret": nats.UserInfo("eu-west", "$nats_password"),
	} {
		c, err := nats.Connect(url, option)
		if !errors.Is(err, nats.ErrAuthorization) {
			t.Errorf("a client with %s: %v, want a refusal", name, err)
		}
		if c != nil {
			c.Close()
		}
	}
}

// TestNATSUserIsOneRegion: eu-west's user subscribes to what its regiond needs, publishes
// under its own name, and is refused every subject under another region's.
func TestNATSUserIsOneRegion(t *testing.T) { eachNATS(t, userIsOneRegion) }

func userIsOneRegion(t *testing.T, url string) {
	refused := make(chan error, 10)
	c, err := nats.Connect(url, nats.UserInfo("eu-west", "eu-secret"),
		nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) { refused <- err }))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	// The server answers a flush after its refusals, and nats.go keeps the last one.
	outcome := func(subject string) error {
		t.Helper()
		if err := c.Flush(); err != nil {
			t.Fatal(err)
		}
		if err := c.LastError(); err == nil || !strings.Contains(err.Error(), `"`+subject+`"`) {
			return nil
		}
		return <-refused
	}
	for _, subject := range meshsync.Subscriptions("eu-west") {
		if _, err := c.SubscribeSync(subject); err != nil {
			t.Fatal(err)
		}
		if err := outcome(subject); err != nil {
			t.Errorf("eu-west subscribes to %s: %v", subject, err)
		}
	}
	for subject, may := range map[string]bool{
		meshsync.SubjectReset + "eu-west":                        true,
		meshsync.SubjectReset + "us-east":                        false,
		meshsync.SubjectTop + "eu-west":                          true,
		meshsync.SubjectTop + "us-east":                          false,
		meshsync.SubjectUsage + "eu-west":                        true,
		meshsync.SubjectHeartbeat + "eu-west":                    true,
		meshsync.SubjectSnapshot + "us-east":                     true, // a request to us-east
		meshsync.SubjectLoan + "eu-west." + meshsync.EveryRegion: true,
		meshsync.SubjectLoan + "eu-west.us-east":                 true,
		meshsync.SubjectUsage + "us-east":                        false,
		meshsync.SubjectHeartbeat + "us-east":                    false,
		meshsync.SubjectLoan + "us-east." + meshsync.EveryRegion: false,
		meshsync.SubjectLoan + "us-east.eu-west":                 false,
		meshsync.SubjectUsage + "ap-south":                       false,
		"rl.v1.other.eu-west":                                    false,
		"$SYS.REQ.SERVER.PING":                                   false,
	} {
		if err := c.Publish(subject, nil); err != nil {
			t.Fatal(err)
		}
		if err := outcome(subject); (err == nil) != may {
			t.Errorf("eu-west publishes %s: %v, want allowed %v", subject, err, may)
		}
	}
	for _, subject := range []string{">", "rl.v1.>", meshsync.SubjectSnapshot + "us-east", meshsync.SubjectSnapshot + "*"} {
		if _, err := c.SubscribeSync(subject); err != nil {
			t.Fatal(err)
		}
		if outcome(subject) == nil {
			t.Errorf("eu-west may subscribe to %s", subject)
		}
	}
}
