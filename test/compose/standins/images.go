package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
)

// standIns lists the images of docker-compose.multi.yml and Dockerfile, in the
// order in which they are seen to.
func standIns(ctx context.Context, work string) []*standIn {
	list := []*standIn{
		golang(ctx), redis(), nats(), nginx(), prometheus(),
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
func golang(ctx context.Context) *standIn {
	root, err := output(exec.CommandContext(ctx, "go", "env", "GOROOT"))
	return &standIn{
		tag:      "golang:1.26-alpine",
		contents: runtime.Version() + " of this machine, busybox",
		config:   "ENV GOPATH=/go GOTOOLCHAIN=local\nENV PATH=/usr/local/go/bin:/go/bin:$PATH\nWORKDIR /go",
		inputs: func(context.Context) ([]string, error) {
			return []string{runtime.Version()}, err
		},
		files: func(ctx context.Context, t *tree) error {
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
func redis() *standIn {
	server, client := find("redis-server"), find("redis-cli")
	return &standIn{
		tag:      "redis:7.4-alpine",
		contents: "redis-server of Debian, as installed on the machine that built this, busybox",
		config:   "WORKDIR /data\nVOLUME /data\nCMD [\"redis-server\"]",
		owned:    []string{"999:1000 /data"},
		inputs:   installed(server, client),
		files: func(ctx context.Context, t *tree) error {
			if err := t.program(ctx, server, "/usr/local/bin/redis-server"); err != nil {
				return err
			}
			return t.program(ctx, client, "/usr/local/bin/redis-cli")
		},
	}
}

// nginx is Debian's, as installed.
func nginx() *standIn {
	server := find("nginx")
	return &standIn{
		tag:      "nginx:1.28-alpine",
		contents: "nginx of Debian, as installed on the machine that built this, busybox",
		config:   "CMD [\"nginx\", \"-g\", \"daemon off;\"]",
		owned:    []string{"101:101 /var/lib/nginx", "101:101 /var/log/nginx"},
		inputs:   installed(server),
		files: func(ctx context.Context, t *tree) error {
			return t.program(ctx, server, "/usr/sbin/nginx")
		},
	}
}

// nats is the server that regiond embeds, at the version of go.mod, as a program.
func nats() *standIn {
	const module = "github.com/nats-io/nats-server/v2"
	return &standIn{
		tag:      "nats:2.15-alpine",
		contents: "nats-server of the Go module, at go.mod's version, busybox",
		config:   "CMD [\"nats-server\"]",
		inputs: func(ctx context.Context) ([]string, error) {
			version, err := output(exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Version}}", module))
			return []string{runtime.Version(), version}, err
		},
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
func prometheus() *standIn {
	return &standIn{
		tag:      "prom/prometheus:v3.5.0",
		contents: "prometheus of Debian, an older release, busybox",
		config:   "WORKDIR /prometheus\nVOLUME /prometheus\nENTRYPOINT [\"/bin/prometheus\"]",
		owned:    []string{"65534:65534 /prometheus"},
		inputs: func(ctx context.Context) ([]string, error) {
			version, err := debianVersion(ctx, "prometheus")
			return []string{version}, err
		},
		files: func(ctx context.Context, t *tree) error {
			files, err := t.unpack(ctx, "prometheus")
			if err != nil {
				return err
			}
			return t.program(ctx, filepath.Join(files, "usr/bin/prometheus"), "/bin/prometheus")
		},
	}
}

// find returns the path of an installed program, "" when it is not there. Debian
// keeps servers in /usr/sbin, which make adds to PATH.
func find(name string) string {
	path, err := exec.LookPath(name)
	if err != nil {
		return ""
	}
	return path
}

// installed makes programs of this machine an image's inputs.
func installed(programs ...string) func(context.Context) ([]string, error) {
	return func(context.Context) ([]string, error) {
		for _, p := range programs {
			if p == "" {
				return nil, errors.New("neither a registry nor this machine has it; run scripts/test-deps, which installs what stand-ins are made of")
			}
		}
		return programs, nil
	}
}
