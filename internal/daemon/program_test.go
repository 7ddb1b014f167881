package daemon

import (
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/oklog/run"

	"github.com/regiond/regiond/internal/telemetry"
	"github.com/regiond/regiond/test/capture"
)

// town is a region whose windows are so long that nothing ages out while a test
// looks at it. STORE is for onRedis or inMemory to fill in.
const town = `regions:
  - name: town
    http: 127.0.0.1:0
    admin: 127.0.0.1:0
    redis: STORE
policies:
  - name: standard
    limits:
      - {name: hourly, units: 5, per: 1h}
      - {name: login, units: 2, per: 1h, by: [ip], when: {route: login}}
  - name: opening
    limits: [{name: hourly, units: 5, per: 1h, near: 80%}]
    on_store_loss: open
  - name: closing
    limits: [{name: hourly, units: 5, per: 1h}]
    on_store_loss: closed
tenants:
  default: {policy: standard}
  openly: {policy: opening}
  closely: {policy: closing}
  watched: {policy: standard, enforcement: observe}
forward_auth:
  tenant: {header: X-Tenant}
  dimensions: {ip: {client_ip: true}}
  policy_from: {header: X-Plan, policies: {gold: opening}}
  trusted_proxies: [127.0.0.1/32]
  routes:
    - {name: login, methods: [POST], path: /login}
    - {name: status, path: /status, skip: true}
`

func onRedis(addr string) string {
	return strings.Replace(town, "STORE", fmt.Sprintf("{addrs: [%q]}", addr), 1)
}

func inMemory() string { return strings.Replace(town, "STORE", "{embedded: true}", 1) }

// patient are the budgets of tests that are not about time: on a machine that
// runs other tests, a pause of the scheduler is not an outage.
func patient() []string { return []string{"--redis-budget", "4s", "--deadline", "5s"} }

// program is a daemon that runs inside the test.
type program struct {
	client
	daemon  *Daemon
	admin   client
	file    string // its topology.yaml
	log     *capture.Log
	signals chan os.Signal
	stop    func() // ends it as Ctrl-C does, and waits
}

// start runs `serve --config … --region town` with that topology until the test ends.
func start(t *testing.T, topology string, flags ...string) *program {
	t.Helper()
	return startFile(t, topologyFile(t, topology), flags...)
}

func topologyFile(t *testing.T, topology string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "topology.yaml")
	write(t, file, topology)
	return file
}

func startFile(t *testing.T, file string, flags ...string) *program {
	t.Helper()
	p := build(t, append([]string{"--config", file, "--region", "town"}, flags...)...)
	p.file = file
	p.run(t)
	return p
}

// build is `serve` up to the point where everything is bound and nothing runs.
func build(t *testing.T, flags ...string) *program {
	t.Helper()
	p := &program{log: &capture.Log{}, signals: make(chan os.Signal, 2)}
	o, err := testOptions(append(patient(), flags...))
	if err != nil {
		t.Fatal(err)
	}
	top, _, err := o.LoadTopology()
	if err != nil {
		t.Fatal(err)
	}
	level := &slog.LevelVar{}
	log, err := telemetry.NewLogger(p.log, "json", level)
	if err != nil {
		t.Fatal(err)
	}
	if p.daemon, err = New(o, top, log, level); err != nil {
		t.Fatal(err)
	}
	p.daemon.watcher.every = settle
	p.client = newClient(t, "http://"+p.daemon.dataAt.Addr().String(), nil)
	p.admin = newClient(t, "http://"+p.daemon.adminAt.Addr().String(), nil)
	if c := p.daemon.config.Load().adminTLS; c != nil { // any test's own authority will do
		p.admin = newClient(t, strings.Replace(p.admin.url, "http:", "https:", 1), &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}})
	}
	return p
}

func (p *program) run(t *testing.T) {
	t.Helper()
	done := make(chan error, 1)
	go func() { done <- p.daemon.Run(context.Background(), p.signals) }()
	p.stop = sync.OnceFunc(func() {
		select {
		case p.signals <- os.Interrupt:
		default: // it has more signals waiting than it needs to stop
		}
		if err := <-done; err != nil {
			t.Errorf("run: %v", err)
		}
	})
	t.Cleanup(func() {
		p.stop()
		if t.Failed() {
			t.Logf("%s said:\n%s", t.Name(), p.log)
		}
	})
	capture.Eventually(t, func() error { // as whoever sends traffic waits
		if a := p.admin.get(t, "/readyz"); a.status != http.StatusOK {
			return fmt.Errorf("/readyz: %d %s", a.status, a.body)
		}
		return nil
	})
}

// rewrite edits the topology file.
func (p *program) rewrite(t *testing.T, old, changed string) {
	t.Helper()
	src, err := os.ReadFile(p.file)
	if err != nil {
		t.Fatal(err)
	}
	put(t, p.file, replace(t, string(src), old, changed))
}

// put replaces a file at once, so that nobody sees half of it.
func put(t *testing.T, file, content string) {
	t.Helper()
	write(t, file+".new", content)
	if err := os.Rename(file+".new", file); err != nil {
		t.Fatal(err)
	}
}

// replace insists on finding what it replaces: a test whose edit does nothing
// would prove nothing.
func replace(t *testing.T, text, old, changed string) string {
	t.Helper()
	if !strings.Contains(text, old) {
		t.Fatalf("%q does not stand in\n%s", old, text)
	}
	return strings.ReplaceAll(text, old, changed)
}

func write(t *testing.T, file, content string) {
	t.Helper()
	if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}

// client asks one listener.
type client struct {
	url  string
	http *http.Client
}

// newClient uses a transport of its own, so that closing it leaves nothing.
func newClient(t *testing.T, url string, transport *http.Transport) client {
	t.Helper()
	if transport == nil {
		transport = &http.Transport{MaxIdleConnsPerHost: 100}
	}
	c := client{url: url, http: &http.Client{Transport: transport, Timeout: 10 * time.Second}}
	t.Cleanup(transport.CloseIdleConnections)
	return c
}

// runComponents runs them until ctx or one of them ends.
func runComponents(ctx context.Context, all []component) error {
	var g run.Group
	ctx, cancel := context.WithCancel(ctx)
	g.Add(func() error { <-ctx.Done(); return nil }, func(error) { cancel() })
	addInOrder(&g, all)
	return g.Run()
}
