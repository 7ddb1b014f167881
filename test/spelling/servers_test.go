//go:build unix

package spelling_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/regiond/regiond/test/gateway"
	"github.com/regiond/regiond/test/leaks"
	"github.com/regiond/regiond/test/spelling"
)

func TestMain(m *testing.M) { leaks.Main(m) }

// TestModelsAreTrue sends the spellings to the real programs: each runs the handler of
// /login for the same paths as its model.
func TestModelsAreTrue(t *testing.T) {
	if testing.Short() {
		t.Skip("starts nginx, HAProxy and Caddy")
	}
	paths := spelling.Logins(1, 10_000)
	running := map[string]string{} // addresses by the model's name
	for _, start := range []func(*testing.T) map[string]string{startNginx, startHAProxy, startCaddy, startGo} {
		for name, addr := range start(t) {
			running[name] = addr
		}
	}
	for _, model := range spelling.Servers() {
		addr, ok := running[model.Name]
		if !ok {
			continue
		}
		delete(running, model.Name)
		t.Run(model.Name, func(t *testing.T) {
			served, wrong := 0, 0
			client := &client{addr: addr}
			defer client.close()
			for _, p := range paths {
				got := client.serves(t, p)
				if got {
					served++
				}
				if want := model.Serves(p); got != want {
					wrong++
					if wrong <= 20 {
						t.Errorf("%s is served as /login: %v, by the model %v", p, got, want)
					}
				}
			}
			t.Logf("%d of %d are served as /login, the model is wrong about %d", served, len(paths), wrong)
			if served == 0 {
				t.Error("no spelling is served as /login")
			}
		})
	}
	for name := range running {
		t.Errorf("%s has no model", name)
	}
}

// client sends targets as they are, which http.Client would not.
type client struct {
	addr string
	conn net.Conn
	in   *bufio.Reader
}

func (c *client) close() {
	if c.conn != nil {
		c.conn.Close()
		c.conn = nil
	}
}

func (c *client) serves(t *testing.T, target string) bool {
	t.Helper()
	if c.conn == nil {
		conn, err := (&net.Dialer{Timeout: 5 * time.Second}).DialContext(context.Background(), "tcp", c.addr)
		if err != nil {
			t.Fatal(err)
		}
		c.conn, c.in = conn, bufio.NewReader(conn)
	}
	_ = c.conn.SetDeadline(time.Now().Add(20 * time.Second))
	if _, err := fmt.Fprintf(c.conn, "POST %s HTTP/1.1\r\nHost: app\r\nContent-Length: 0\r\n\r\n", target); err != nil {
		t.Fatalf("%s: %v", target, err)
	}
	resp, err := http.ReadResponse(c.in, nil)
	if err != nil {
		t.Fatalf("%s: %v", target, err)
	}
	body, err := io.ReadAll(resp.Body)
	resp.Body.Close()
	if err != nil {
		t.Fatalf("%s: %v", target, err)
	}
	if resp.Close {
		c.close()
	}
	return resp.StatusCode == http.StatusOK && string(body) == "login"
}

func write(t *testing.T, dir, name, text string) string {
	t.Helper()
	file := filepath.Join(dir, name)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

func startNginx(t *testing.T) map[string]string {
	dir, a := t.TempDir(), gateway.FreeAddrs(t, 4)
	const app = `location / { return 200 other; }`
	temp := ""
	for _, kind := range []string{"client_body", "proxy", "fastcgi", "uwsgi", "scgi"} {
		temp += fmt.Sprintf("%s_temp_path %s/%s;\n", kind, dir, kind)
	}
	conf := write(t, dir, "nginx.conf", `pid `+dir+`/nginx.pid; error_log stderr crit; worker_processes 1;
events { }
http { access_log off; keepalive_requests 100000; `+temp+`
	server { listen `+a[0]+`; location ~ ^/login/?$ { return 200 login; } `+app+` }
	server { listen `+a[1]+`; location ~* ^/login/?$ { return 200 login; } `+app+` }
	server { listen `+a[2]+`; merge_slashes off; location ~ ^/login/?$ { return 200 login; } `+app+` }
	server { listen `+a[3]+`; location / { proxy_pass http://`+a[0]+`$uri; } }
}`)
	p := gateway.Run(t, dir, "nginx", syscall.SIGTERM, "-p", dir, "-c", conf, "-g", "daemon off;")
	p.Await(t, func() error { return gateway.Dial(a[0]) })
	return map[string]string{"nginx": a[0], "nginx ignoring case": a[1], "nginx keeping slashes": a[2], "nginx behind proxy_pass $uri": a[3]}
}

func startHAProxy(t *testing.T) map[string]string {
	dir, a := t.TempDir(), gateway.FreeAddrs(t, 4)
	frontend := func(i int, match, rules string) string {
		return fmt.Sprintf(`frontend f%d
	bind %s
	%s
	http-request return status 200 content-type text/plain string login if { %s /login /login/ }
	http-request return status 200 content-type text/plain string other
`, i, a[i], rules, match)
	}
	conf := write(t, dir, "haproxy.cfg", "global\n\texpose-experimental-directives\ndefaults\n\tmode http\n\ttimeout client 30s\n\ttimeout connect 1s\n\ttimeout server 1s\n"+
		frontend(0, "path", "")+frontend(1, "path -i", "")+frontend(2, "path,url_dec -m str", "")+
		frontend(3, "path", strings.Join([]string{
			"http-request normalize-uri path-merge-slashes", "http-request normalize-uri percent-decode-unreserved",
			"http-request normalize-uri path-strip-dot", "http-request normalize-uri path-strip-dotdot full",
		}, "\n\t")))
	p := gateway.Run(t, dir, "haproxy", syscall.SIGTERM, "-db", "-f", conf)
	p.Await(t, func() error { return gateway.Dial(a[0]) })
	return map[string]string{"HAProxy": a[0], "HAProxy ignoring case": a[1], "HAProxy url_dec": a[2], "HAProxy normalize-uri": a[3]}
}

func startCaddy(t *testing.T) map[string]string {
	dir, a := t.TempDir(), gateway.FreeAddrs(t, 1)
	conf := write(t, dir, "Caddyfile", `{
	admin off
	default_bind 127.0.0.1
}
:`+strings.TrimPrefix(a[0], "127.0.0.1:")+` {
	@login path /login /login/
	respond @login login 200
	respond other 200
}
`)
	p := gateway.Run(t, dir, "caddy", syscall.SIGTERM, "run", "--adapter", "caddyfile", "--config", conf)
	p.Await(t, func() error { return gateway.Dial(a[0]) })
	return map[string]string{"Caddy": a[0]}
}

func startGo(t *testing.T) map[string]string {
	answer := func(w http.ResponseWriter, login bool) {
		_, _ = io.WriteString(w, map[bool]string{true: "login", false: "other"}[login])
	}
	mux := http.NewServeMux()
	mux.HandleFunc("/login", func(w http.ResponseWriter, _ *http.Request) { answer(w, true) })
	mux.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) { answer(w, false) })
	return map[string]string{
		"Go URL.Path": gateway.Serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			answer(w, strings.TrimSuffix(r.URL.Path, "/") == "/login")
		})),
		"Go path.Clean": gateway.Serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			answer(w, path.Clean(r.URL.Path) == "/login")
		})),
		"Go ServeMux": gateway.Serve(t, mux),
	}
}
