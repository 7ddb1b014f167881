package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
)

// standIns are the images of docker-compose.multi.yml and Dockerfile.
func standIns(ctx context.Context, work string) []*standIn {
	list := []*standIn{
		golang(), redis(ctx), nats(ctx), nginx(ctx), prometheus(ctx),
		{
			tag:      "jaegertracing/jaeger:2.21.0",
			contents: "cannot be pulled, and there is no stand-in: leave it out of the profile observe (up -d prometheus)",
		},
	}
	for i, s := range list {
		s.work = filepath.Join(work, fmt.Sprint(i))
	}
	return list
}

// golang is the Go tree that runs this program.
func golang() *standIn {
	return &standIn{
		tag:      "golang:1.26-alpine",
		contents: runtime.Version() + " of this machine, busybox",
		config:   "ENV GOPATH=/go GOTOOLCHAIN=local\nENV PATH=/usr/local/go/bin:/go/bin:$PATH\nWORKDIR /go",
		files: func(ctx context.Context, t *tree) error {
			root, err := output(exec.CommandContext(ctx, "go", "env", "GOROOT"))
			if err != nil {
				return err
			}
			for _, part := range []string{"bin", "lib", "pkg", "src", "go.env", "VERSION"} {
				if err := t.copyAll(ctx, filepath.Join(root, part), "/usr/local/go/"+part); err != nil {
					return err
				}
			}
			return os.MkdirAll(filepath.Join(t.root, "tmp"), 0o777)
		},
	}
}

// redis is Debian's, as installed: the tests need it anyway.
func redis(ctx context.Context) *standIn {
	return &standIn{
		tag:      "redis:7.4-alpine",
		contents: "installed Redis: " + version(ctx, "redis-server", "--version"),
		config:   "WORKDIR /data\nVOLUME /data\nCMD [\"redis-server\"]",
		owned:    []string{"999:1000 /data"},
		files: func(ctx context.Context, t *tree) error {
			if err := t.installed(ctx, "redis-server", "/usr/local/bin/redis-server"); err != nil {
				return err
			}
			return t.installed(ctx, "redis-cli", "/usr/local/bin/redis-cli")
		},
	}
}

// nginx is Debian's, as installed.
func nginx(ctx context.Context) *standIn {
	return &standIn{
		tag:      "nginx:1.28-alpine",
		contents: "installed nginx: " + version(ctx, "dpkg-query", "--show", "nginx"),
		config:   "CMD [\"nginx\", \"-g\", \"daemon off;\"]",
		owned:    []string{"101:101 /var/lib/nginx", "101:101 /var/log/nginx"},
		files: func(ctx context.Context, t *tree) error {
			return t.installed(ctx, "nginx", "/usr/sbin/nginx")
		},
	}
}

// nats is the server that regiond embeds, at the version of go.mod, as a program.
func nats(ctx context.Context) *standIn {
	const module = "github.com/nats-io/nats-server/v2"
	return &standIn{
		tag:      "nats:2.15-alpine",
		contents: version(ctx, "go", "list", "-m", module) + " of the Go module proxy, " + runtime.Version(),
		config:   "CMD [\"nats-server\"]",
		files: func(ctx context.Context, t *tree) error {
			server := filepath.Join(t.scratch, "nats-server")
			if _, err := output(exec.CommandContext(ctx, "go", "build", "-o", server, module)); err != nil {
				return err
			}
			return t.program(ctx, server, "/usr/local/bin/nats-server")
		},
	}
}

// prometheus is Debian's package, fetched and not installed: a service of its own
// would come with it.
func prometheus(ctx context.Context) *standIn {
	return &standIn{
		tag:      "prom/prometheus:v3.5.0",
		contents: "Debian's Prometheus: " + version(ctx, "apt-get", "-qq", "--print-uris", "download", "prometheus"),
		config:   "WORKDIR /prometheus\nVOLUME /prometheus\nENTRYPOINT [\"/bin/prometheus\"]",
		owned:    []string{"65534:65534 /prometheus"},
		files: func(ctx context.Context, t *tree) error {
			files, err := t.unpack(ctx, "prometheus")
			if err != nil {
				return err
			}
			return t.program(ctx, filepath.Join(files, "usr/bin/prometheus"), "/bin/prometheus")
		},
	}
}

// version is the first line that a command prints.
func version(ctx context.Context, name string, args ...string) string {
	line, err := output(exec.CommandContext(ctx, name, args...))
	if err != nil {
		return "unknown"
	}
	line, _, _ = strings.Cut(line, "\n")
	return line
}
