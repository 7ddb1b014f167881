package compose

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/compose-spec/compose-go/v2/loader"
	"github.com/compose-spec/compose-go/v2/types"

	"github.com/regiond/regiond/region"
)

const root = "../.."

func read(t *testing.T, name string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(root, name))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// load reads docker-compose.multi.yml as Compose v2 does, with all profiles.
func load(t *testing.T, env map[string]string) *types.Project {
	t.Helper()
	p, err := loader.LoadWithContext(t.Context(), types.ConfigDetails{
		WorkingDir:  root,
		ConfigFiles: []types.ConfigFile{{Filename: "docker-compose.multi.yml", Content: []byte(read(t, "docker-compose.multi.yml"))}},
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

// topology is the file that all regions serve.
func topology(t *testing.T) *region.Topology {
	t.Helper()
	top, warnings, err := region.Parse("topology.yaml", []byte(read(t, "topology.yaml")))
	if err != nil || len(warnings) > 0 {
		t.Fatalf("topology.yaml: %v %v", err, warnings)
	}
	return top
}

// docker-compose 1.29 takes a file without these for the format of Compose v2.
func TestFileHasNeitherNameNorVersion(t *testing.T) {
	if regexp.MustCompile(`(?m)^(name|version):`).MatchString(read(t, "docker-compose.multi.yml")) {
		t.Error("docker-compose.multi.yml has a name or a version; docker-compose 1.29 refuses the one and reads the other as an old format")
	}
}

// Nobody gets more than it needs, and only 127.0.0.1 is told of any port.
func TestServicesAreHardened(t *testing.T) {
	secret := regexp.MustCompile(`(?i)password|secret|token|key`)
	for name, s := range load(t, nil).Services {
		user, _, _ := strings.Cut(s.User, ":")
		if name[:3] == "reg" {
			user = "65532" // the image's own, see TestImageHasNoRoot
		}
		if user == "" || user == "0" || user == "root" {
			t.Errorf("%s runs as %q", name, s.User)
		}
		if !s.ReadOnly || !slices.Equal(s.CapDrop, []string{"ALL"}) || !slices.Equal(s.SecurityOpt, []string{"no-new-privileges:true"}) || s.Privileged || len(s.CapAdd) > 0 {
			t.Errorf("%s: read_only %v, cap_drop %v, cap_add %v, security_opt %v", name, s.ReadOnly, s.CapDrop, s.CapAdd, s.SecurityOpt)
		}
		for _, p := range s.Ports {
			if p.HostIP != "127.0.0.1" {
				t.Errorf("%s publishes %s on %q, want 127.0.0.1", name, p.Published, p.HostIP)
			}
		}
		for variable := range s.Environment {
			if secret.MatchString(variable) {
				t.Errorf("%s is told %s by its environment, which anybody who may inspect it reads; use a secret", name, variable)
			}
		}
		if s.HealthCheck == nil && name != "jaeger" {
			t.Errorf("%s has no health check", name)
		}
		if tag := s.Image[strings.LastIndex(s.Image, ":")+1:]; tag == s.Image || tag == "latest" {
			t.Errorf("%s: image %s has no tag of its own", name, s.Image)
		}
	}
}

func TestImageHasNoRoot(t *testing.T) {
	last := read(t, "Dockerfile")
	last = last[strings.LastIndex(last, "\nFROM "):]
	if !strings.HasPrefix(last, "\nFROM scratch\n") || !strings.Contains(last, "\nUSER 65532:65532\n") || !strings.Contains(last, `"/regiond", "healthcheck"`) {
		t.Errorf("the image is not one program of nobody's with a health check:\n%s", last)
	}
}

// The classic builder knows neither of these.
func TestDockerfileIsForTheClassicBuilder(t *testing.T) {
	for _, word := range []string{"# syntax", "--mount", "<<EOF", "COPY --link"} {
		if strings.Contains(read(t, "Dockerfile"), word) {
			t.Errorf("Dockerfile has %s, which needs BuildKit", word)
		}
	}
}

// A room that .dockerignore does not let through is missed when the image is built.
func TestImageGetsEveryRoom(t *testing.T) {
	const module = "github.com/regiond/regiond/"
	list := exec.CommandContext(t.Context(), "go", "list", "-deps", "./cmd/regiond")
	list.Dir = root
	packages, err := list.Output()
	if err != nil {
		t.Fatal(err)
	}
	let := strings.Split(read(t, ".dockerignore"), "\n")
	for pkg := range strings.Lines(string(packages)) {
		if path, ours := strings.CutPrefix(strings.TrimSpace(pkg), module); ours {
			room, _, _ := strings.Cut(path, "/")
			if !slices.Contains(let, "!"+room) {
				t.Errorf("the program needs %s, and .dockerignore keeps %s out", path, room)
			}
		}
	}
}

// One region's containers are on its network; on the WAN are NATS and regiond.
func TestWhoIsOnWhichNetwork(t *testing.T) {
	p := load(t, nil)
	for _, g := range topology(t).Regions {
		for service, want := range map[string][]string{
			"redis-" + g.Name:   {g.Name},
			"nats-" + g.Name:    {g.Name, "wan"},
			"regiond-" + g.Name: {g.Name, "wan"},
			"nginx-" + g.Name:   {g.Name},
		} {
			var got []string
			for n := range p.Services[service].Networks {
				got = append(got, n)
			}
			slices.Sort(got)
			if !slices.Equal(got, want) {
				t.Errorf("%s is on %v, want %v", service, got, want)
			}
		}
	}
	if !p.Networks["wan"].Internal {
		t.Error("the WAN has a way out; published ports would then lead over it")
	}
}

// What topology.yaml calls by name has that name, on the network where it is called.
func TestNamesOfTheTopologyAreThere(t *testing.T) {
	p := load(t, nil)
	alias := func(service, network string) []string {
		c := p.Services[service].Networks[network]
		if c == nil {
			return nil
		}
		return c.Aliases
	}
	for _, g := range topology(t).Regions {
		for _, row := range []struct{ address, service, network string }{
			{g.Redis.Addrs[0], "redis-" + g.Name, g.Name},
			{strings.TrimPrefix(g.NATS.URLs[0], "nats://"), "nats-" + g.Name, g.Name},
			{g.Gossip.Advertise, "regiond-" + g.Name, "wan"},
		} {
			host, _, _ := strings.Cut(row.address, ":")
			if !slices.Contains(alias(row.service, row.network), host) {
				t.Errorf("topology.yaml says %s; %s has no such name on %s", host, row.service, row.network)
			}
		}
		s := p.Services["regiond-"+g.Name]
		for _, file := range []string{g.Gossip.KeyFile, g.Redis.PasswordFile} {
			if !slices.ContainsFunc(s.Secrets, func(c types.ServiceSecretConfig) bool { return "/run/secrets/"+c.Target == file }) {
				t.Errorf("topology.yaml reads %s, which regiond-%s has no secret for", file, g.Name)
			}
		}
		if command := strings.Join(s.Command, " "); !strings.Contains(command, "--region "+g.Name+" ") {
			t.Errorf("regiond-%s is told to be another: %s", g.Name, command)
		}
		if mounted := s.Volumes[0]; filepath.Base(mounted.Source) != "topology.yaml" || !mounted.ReadOnly {
			t.Errorf("regiond-%s reads %s, want topology.yaml as it is", g.Name, mounted.Source)
		}
	}
}

// A variable that is set and empty asks for any free port, so that a second
// deployment is not in the way of the first.
func TestPortsMayBeAny(t *testing.T) {
	variable := regexp.MustCompile(`\$\{([A-Z_]+_PORT)-`)
	env := map[string]string{}
	for _, m := range variable.FindAllStringSubmatch(read(t, "docker-compose.multi.yml"), -1) {
		env[m[1]] = ""
	}
	variables := len(env)
	fixed := map[string]string{}
	for name, s := range load(t, nil).Services {
		for _, p := range s.Ports {
			if other := fixed[p.Published]; p.Published == "" || other != "" {
				t.Errorf("%s and %q publish %q", name, other, p.Published)
			}
			fixed[p.Published] = name
		}
	}
	for name, s := range load(t, env).Services {
		for _, p := range s.Ports {
			if p.Published != "" {
				t.Errorf("%s publishes %s whatever its variable says", name, p.Published)
			}
		}
	}
	if variables != len(fixed) || len(fixed) != 8 {
		t.Errorf("%d ports, %d variables, want 8", len(fixed), variables)
	}
}
