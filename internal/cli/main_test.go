package cli

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/regiond/regiond/internal/daemon"
	"github.com/regiond/regiond/test/golden"
	"github.com/regiond/regiond/test/leaks"
)

// TestMain holds every command to leaving nothing behind.
func TestMain(m *testing.M) { leaks.Main(m) }

// output is what a command printed, and its exit code.
type output struct {
	code           int
	stdout, stderr string
}

// invoke runs a command as main does.
func invoke(t *testing.T, args ...string) output {
	t.Helper()
	return invokeIn(t.Context(), args...)
}

func invokeIn(ctx context.Context, args ...string) output {
	b := ReadBuild(Build{})
	program := New(b, Regions(), Top(), Validate(daemon.CheckFiles), Schema(), Check(), Explain(), Bench(), Healthcheck(), b.Command())
	var stdout, stderr bytes.Buffer
	code := Run(ctx, program, args, &stdout, &stderr)
	http.DefaultClient.CloseIdleConnections() // the process would end here
	return output{code, stdout.String(), stderr.String()}
}

// session is a golden file: commands, what each printed, and its exit code.
type session struct {
	text    strings.Builder
	replace []string // pairs: what differs from run to run, and what stands for it
}

var retry = regexp.MustCompile(`retry after (59m59|1h0m0)[0-9.]*s`)

// run runs a command and adds it to the session. Lines of stderr begin with "! ".
func (s *session) run(t *testing.T, args ...string) {
	t.Helper()
	got := invoke(t, args...)
	tidy := strings.NewReplacer(s.replace...).Replace
	fmt.Fprintf(&s.text, "$ regiond %s\n%s", tidy(strings.Join(args, " ")), retry.ReplaceAllString(tidy(got.stdout), "retry after 59m59.9s"))
	for line := range strings.Lines(tidy(got.stderr)) {
		s.text.WriteString("! " + line)
	}
	fmt.Fprintf(&s.text, "= %d\n\n", got.code)
}

func (s *session) compare(t *testing.T, name string) {
	t.Helper()
	golden.Compare(t, name+".golden", s.text.String())
}

func write(t *testing.T, file, content string) {
	t.Helper()
	if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}

// topology is a region whose windows are so long that nothing ages out of them.
const topology = `regions:
  - {name: town, http: "127.0.0.1:0", admin: "127.0.0.1:0", redis: STORE}
policies:
  - name: standard
    limits:
      - {name: hourly, units: 5, per: 1h}
      - {name: login, units: 2, per: 1h, by: [ip], when: {route: login}}
  - {name: opening, limits: [{name: hourly, units: 5, per: 1h}], on_store_loss: open}
  - {name: closing, limits: [{name: hourly, units: 5, per: 1h}], on_store_loss: closed}
tenants:
  default: {policy: standard}
  openly: {policy: opening}
  closely: {policy: closing}
  watched: {policy: standard, enforcement: observe}
forward_auth:
  tenant: {header: X-Tenant}
  dimensions: {ip: {client_ip: true}}
  trusted_proxies: [127.0.0.1/32]
  routes: [{name: login, methods: [POST], path: /login}]
`

// program is a daemon that runs inside the test.
type program struct {
	url, admin string
	signals    chan os.Signal
	stop       func()
}

const inMemory = "{embedded: true}"

// start runs a daemon on a store until the test ends.
func start(t *testing.T, store string) *program {
	t.Helper()
	file := filepath.Join(t.TempDir(), "topology.yaml")
	write(t, file, strings.Replace(topology, "STORE", store, 1))
	o := &daemon.Options{Config: file, Region: "town", Instance: "one", Processes: 1, Budget: 4 * time.Second, Deadline: 5 * time.Second, Drain: time.Minute}
	top, _, err := o.LoadTopology()
	if err != nil {
		t.Fatal(err)
	}
	d, err := daemon.New(o, top, slog.New(slog.DiscardHandler), &slog.LevelVar{})
	if err != nil {
		t.Fatal(err)
	}
	p := &program{url: "http://" + d.DataAddr().String(), admin: "http://" + d.AdminAddr().String(), signals: make(chan os.Signal, 1)}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- d.Run(ctx, p.signals) }()
	p.stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(p.stop)
	awaitReady(t, p, http.StatusOK)
	return p
}

func awaitReady(t *testing.T, p *program, status int) {
	t.Helper()
	for began := time.Now(); time.Since(began) < 20*time.Second; time.Sleep(5 * time.Millisecond) {
		if got, _ := get(t, p.admin+"/readyz"); got == status {
			return
		}
	}
	t.Fatalf("/readyz is not %d within 20 s", status)
}

func get(t *testing.T, url string) (status int, body string) {
	t.Helper()
	res, err := http.DefaultClient.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res.StatusCode, string(text)
}
