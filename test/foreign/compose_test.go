package foreign_test

import (
	"maps"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/compose-spec/compose-go/v2/loader"
	"github.com/compose-spec/compose-go/v2/types"
	"github.com/goccy/go-yaml"

	"github.com/regiond/regiond/region"
	"github.com/regiond/regiond/region/warnings"
)

const composeFile = "docker-compose.multi.yml"

// load reads docker-compose.multi.yml as Compose v2 does, with all profiles.
func load(t *testing.T, env map[string]string) *types.Project {
	t.Helper()
	p, err := loader.LoadWithContext(t.Context(), types.ConfigDetails{
		WorkingDir:  "../..",
		ConfigFiles: []types.ConfigFile{{Filename: composeFile, Content: []byte(read(t, composeFile))}},
		Environment: env,
	}, func(o *loader.Options) {
		o.SetProjectName("regiond", true)
		o.Profiles = []string{"*"}
	})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// TestServicesAreHardened: no root, no capabilities, a read-only file system, bounded memory and processes, ports on
// 127.0.0.1 only, secrets in files, a health check, a pinned image.
func TestServicesAreHardened(t *testing.T) {
	secret := regexp.MustCompile(`(?i)password|secret|token|key`)
	for name, s := range load(t, nil).Services {
		user, _, _ := strings.Cut(s.User, ":")
		if strings.HasPrefix(name, "regiond") {
			user = "65532" // set by the image, see TestDockerfile
		}
		if user == "" || user == "0" || user == "root" {
			t.Errorf("%s runs as %q", name, s.User)
		}
		if !s.ReadOnly || !slices.Equal(s.CapDrop, []string{"ALL"}) || !slices.Equal(s.SecurityOpt, []string{"no-new-privileges:true"}) || s.Privileged || len(s.CapAdd) > 0 {
			t.Errorf("%s: read_only %v, cap_drop %v, cap_add %v, security_opt %v", name, s.ReadOnly, s.CapDrop, s.CapAdd, s.SecurityOpt)
		}
		if s.MemLimit <= 0 || s.PidsLimit <= 0 {
			t.Errorf("%s: mem_limit %v, pids_limit %v: it can take the machine from the others", name, s.MemLimit, s.PidsLimit)
		}
		for _, p := range s.Ports {
			if p.HostIP != "127.0.0.1" {
				t.Errorf("%s publishes %s on %q, want 127.0.0.1", name, p.Published, p.HostIP)
			}
		}
		for variable := range s.Environment {
			if secret.MatchString(variable) {
				t.Errorf("%s has %s in its environment; use a secret", name, variable)
			}
		}
		if s.HealthCheck == nil && name != "jaeger" {
			t.Errorf("%s has no health check", name)
		}
		if tag := s.Image[strings.LastIndex(s.Image, ":")+1:]; tag == s.Image || tag == "latest" {
			t.Errorf("%s: image %s is not pinned", name, s.Image)
		}
	}
}

// TestDockerfile: the image has one program, no root and a health check, the classic
// builder can build it, and .dockerignore lets every package through.
func TestDockerfile(t *testing.T) {
	text := read(t, "Dockerfile")
	last := text[strings.LastIndex(text, "\nFROM "):]
	if !strings.HasPrefix(last, "\nFROM scratch\n") || !strings.Contains(last, "\nUSER 65532:65532\n") || !strings.Contains(last, `"/regiond", "healthcheck"`) {
		t.Errorf("the image is not from scratch, without root and with a health check:\n%s", last)
	}
	for _, name := range []string{"title", "description", "licenses", "source", "version", "revision", "created"} {
		if !strings.Contains(last, "org.opencontainers.image."+name+"=") {
			t.Errorf("the image has no label %s", name)
		}
	}
	if !strings.Contains(text, "-tags grpcnotrace ") {
		t.Error("Dockerfile builds without grpcnotrace, which makes the program 15 MB larger: scripts/release and make build have it")
	}
	for _, word := range []string{"# syntax", "--mount", "<<EOF", "COPY --link"} {
		if strings.Contains(text, word) {
			t.Errorf("Dockerfile has %s, which needs BuildKit", word)
		}
	}
	list := exec.CommandContext(t.Context(), "go", "list", "-deps", "./cmd/regiond")
	list.Dir = "../.."
	packages, err := list.Output()
	if err != nil {
		t.Fatal(err)
	}
	ignore := strings.Split(read(t, ".dockerignore"), "\n")
	for pkg := range strings.Lines(string(packages)) {
		if path, ours := strings.CutPrefix(strings.TrimSpace(pkg), "github.com/regiond/regiond/"); ours {
			top, _, _ := strings.Cut(path, "/")
			if !slices.Contains(ignore, "!"+top) {
				t.Errorf(".dockerignore excludes %s, which the program needs", path)
			}
		}
	}
}

// TestNetworks: a region's containers are on its network, only NATS and regiond on the
// WAN, and what observes on networks of its own with each regiond, under the names that
// topology.yaml uses and with the secrets it reads.
func TestNetworks(t *testing.T) {
	top, found, err := region.Load("../../topology.yaml", warnings.Of)
	if err != nil || len(found) > 0 {
		t.Fatalf("topology.yaml: %v %v", err, found)
	}
	p := load(t, nil)
	watched := []string{"desk"}
	for _, g := range top.Regions {
		watched = append(watched, "observe-"+g.Name)
	}
	slices.Sort(watched)
	for _, service := range []string{"prometheus", "jaeger"} {
		if got := slices.Sorted(maps.Keys(p.Services[service].Networks)); !slices.Equal(got, watched) {
			t.Errorf("%s is on %v, want %v", service, got, watched)
		}
	}
	for _, name := range append([]string{"wan"}, watched[1:]...) {
		if !p.Networks[name].Internal {
			t.Errorf("%s is not internal; published ports would lead over it", name)
		}
	}
	// Whoever takes one container over has the admin listener or one region's NATS, and no more.
	for secret, want := range map[string][]string{
		"prometheus-token":   {"prometheus"},
		"nats-eu-west":       {"regiond-eu-west"},
		"nats-eu-west-user":  {"nats-eu-west"},
		"nats-us-east":       {"regiond-us-east"},
		"nats-us-east-user":  {"nats-us-east"},
		"nats-ap-south":      {"regiond-ap-south"},
		"nats-ap-south-user": {"nats-ap-south"},
	} {
		var holders []string
		for name, s := range p.Services {
			if slices.ContainsFunc(s.Secrets, func(c types.ServiceSecretConfig) bool { return c.Source == secret }) {
				holders = append(holders, name)
			}
		}
		if !slices.Equal(holders, want) {
			t.Errorf("%v have %s, want %v", holders, secret, want)
		}
	}
	for _, g := range top.Regions {
		for service, want := range map[string][]string{
			"redis-" + g.Name:   {g.Name},
			"nats-" + g.Name:    {g.Name, "wan"},
			"regiond-" + g.Name: {g.Name, "observe-" + g.Name, "wan"},
			"nginx-" + g.Name:   {g.Name},
		} {
			slices.Sort(want)
			if got := slices.Sorted(maps.Keys(p.Services[service].Networks)); !slices.Equal(got, want) {
				t.Errorf("%s is on %v, want %v", service, got, want)
			}
		}
		for _, row := range []struct{ address, service, network string }{
			{g.Redis.Addrs[0], "redis-" + g.Name, g.Name},
			{strings.TrimPrefix(g.NATS.URLs[0], "nats://"), "nats-" + g.Name, g.Name},
			{g.Gossip.Advertise, "regiond-" + g.Name, "wan"},
			{"regiond." + g.Name + ".observe:9090", "regiond-" + g.Name, "observe-" + g.Name},
		} {
			host, _, _ := strings.Cut(row.address, ":")
			if n := p.Services[row.service].Networks[row.network]; n == nil || !slices.Contains(n.Aliases, host) {
				t.Errorf("topology.yaml names %s; %s has no such alias on %s", host, row.service, row.network)
			}
		}
		s := p.Services["regiond-"+g.Name]
		for _, file := range []string{g.Gossip.KeyFile, g.Redis.PasswordFile, g.NATS.PasswordFile, top.Access.AdminTokensFile} {
			if !slices.ContainsFunc(s.Secrets, func(c types.ServiceSecretConfig) bool { return "/run/secrets/"+c.Target == file }) {
				t.Errorf("topology.yaml reads %s, and regiond-%s has no such secret", file, g.Name)
			}
		}
		if command := strings.Join(s.Command, " "); !strings.Contains(command, "--region "+g.Name+" ") || !strings.Contains(command, "--admin regiond."+g.Name+".observe:9090") {
			t.Errorf("regiond-%s runs %s", g.Name, command)
		}
		if v := s.Volumes[0]; !strings.HasSuffix(v.Source, "/topology.yaml") || !v.ReadOnly {
			t.Errorf("regiond-%s mounts %s, want topology.yaml, read-only", g.Name, v.Source)
		}
	}
}

// TestPorts: all published ports differ, and an empty variable stands for any free
// port, so that two deployments can run on one host.
func TestPorts(t *testing.T) {
	env, ports := map[string]string{}, map[string]bool{}
	for _, m := range regexp.MustCompile(`\$\{([A-Z_]+_PORT)-`).FindAllStringSubmatch(read(t, composeFile), -1) {
		env[m[1]] = ""
	}
	published := func(env map[string]string) (all []string) {
		for _, s := range load(t, env).Services {
			for _, p := range s.Ports {
				all = append(all, p.Published)
			}
		}
		return all
	}
	for _, p := range published(nil) {
		ports[p] = true
	}
	if delete(ports, ""); len(ports) != 9 || len(env) != 9 {
		t.Errorf("ports %v, %d variables, want 9 of each", ports, len(env))
	}
	if free := published(env); slices.ContainsFunc(free, func(p string) bool { return p != "" }) {
		t.Errorf("ports are %q with empty variables", free)
	}
}

// TestPrometheusReadsTheRules: each file of rule_files is mounted, from one that exists.
func TestPrometheusReadsTheRules(t *testing.T) {
	var config struct {
		RuleFiles []string `yaml:"rule_files"`
	}
	if err := yaml.Unmarshal([]byte(read(t, "deploy/prometheus.yml")), &config); err != nil {
		t.Fatal(err)
	}
	if len(config.RuleFiles) == 0 {
		t.Fatal("deploy/prometheus.yml names no rule_files: no alert would ever fire")
	}
	service := load(t, nil).Services["prometheus"]
	for _, file := range config.RuleFiles {
		i := slices.IndexFunc(service.Volumes, func(v types.ServiceVolumeConfig) bool { return v.Target == file && v.ReadOnly })
		if i < 0 {
			t.Errorf("%s is not mounted", file)
			continue
		}
		if _, err := os.Stat(service.Volumes[i].Source); err != nil {
			t.Errorf("%s: %v", file, err)
		}
	}
}
