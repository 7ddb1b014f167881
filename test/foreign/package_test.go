package foreign_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// release runs scripts/release of a folder for linux/amd64, or for the architecture of this machine's packages.
func release(t *testing.T, root, version string) (dir, arch string) {
	t.Helper()
	tools, err := filepath.Abs("../../.tools")
	if err != nil {
		t.Fatal(err)
	}
	only := func(pattern string) string {
		found, err := filepath.Glob(filepath.Join(tools, pattern))
		if err != nil || len(found) == 0 {
			t.Fatalf("no %s in .tools (%v); run make foreign", pattern, err)
		}
		return found[len(found)-1]
	}
	out, err := exec.CommandContext(t.Context(), "dpkg", "--print-architecture").Output()
	if err != nil {
		t.Fatal(err)
	}
	arch, dir = strings.TrimSpace(string(out)), t.TempDir()
	c := exec.CommandContext(t.Context(), filepath.Join(root, "scripts", "release"), version, dir, "linux/"+arch)
	c.Env = append(os.Environ(), "NFPM="+only("nfpm-*"), "CYCLONEDX="+only("cyclonedx-gomod-*"))
	if out, err := c.CombinedOutput(); err != nil {
		t.Fatalf("release %s: %v\n%s", version, err, out)
	}
	return dir, arch
}

// TestPackages: what scripts/release makes is the same wherever it is made, says what is in it, and is installed, upgraded and
// removed as people expect of a package.
func TestPackages(t *testing.T) {
	dir, arch := release(t, "../..", "v0.1.0")
	t.Run("the same bytes from another folder", func(t *testing.T) {
		again, _ := release(t, copyOf(t, "../.."), "v0.1.0")
		sums, err := os.ReadFile(filepath.Join(dir, "SHA256SUMS"))
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{
			"regiond_0.1.0_linux_" + arch + ".tar.gz", "regiond_0.1.0_linux_" + arch + ".cdx.json",
			"regiond_0.1.0_" + arch + ".deb", rpmName(arch),
		} {
			one, err1 := os.ReadFile(filepath.Join(dir, name))
			two, err2 := os.ReadFile(filepath.Join(again, name))
			if err1 != nil || err2 != nil || !bytes.Equal(one, two) {
				t.Errorf("%s differs (%v, %v): %d and %d bytes", name, err1, err2, len(one), len(two))
			}
			if !bytes.Contains(sums, []byte("  "+name+"\n")) {
				t.Errorf("SHA256SUMS lacks %s:\n%s", name, sums)
			}
		}
		check := exec.CommandContext(t.Context(), "sha256sum", "--check", "--strict", "SHA256SUMS")
		check.Dir = again
		if out, err := check.CombinedOutput(); err != nil {
			t.Errorf("%v\n%s", err, out)
		}
	})
	t.Run("the linker left out what nothing calls", func(t *testing.T) { small(t, dir, arch) })
	t.Run("the bill of materials names what is linked", func(t *testing.T) { billOfMaterials(t, dir, arch) })
	t.Run("both packages have the same files", func(t *testing.T) { listings(t, dir, arch) })
	t.Run("installed, upgraded, purged", func(t *testing.T) {
		newer, _ := release(t, "../..", "v0.1.1")
		lifecycle(t, filepath.Join(dir, "regiond_0.1.0_"+arch+".deb"), filepath.Join(newer, "regiond_0.1.1_"+arch+".deb"))
	})
}

func rpmName(arch string) string {
	return "regiond-0.1.0-1." + map[string]string{"amd64": "x86_64", "arm64": "aarch64"}[arch] + ".rpm"
}

// copyOf is the checkout in another folder: its files as they are now, later in time, and the same commit.
func copyOf(t *testing.T, root string) (dir string) {
	t.Helper()
	dir = t.TempDir()
	list := exec.CommandContext(t.Context(), "git", "ls-files", "-z", "--cached", "--others", "--exclude-standard")
	list.Dir = root
	names, err := list.Output()
	if err != nil {
		t.Fatal(err)
	}
	for name := range strings.SplitSeq(strings.TrimRight(string(names), "\x00"), "\x00") {
		from, to := filepath.Join(root, name), filepath.Join(dir, name)
		info, err := os.Stat(from)
		if err != nil {
			continue // deleted, and not yet committed
		}
		data, err := os.ReadFile(from)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.MkdirAll(filepath.Dir(to), 0o750); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(to, data, info.Mode().Perm()); err != nil {
			t.Fatal(err)
		}
	}
	checkout, err := filepath.Abs(filepath.Join(root, ".git"))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(checkout, filepath.Join(dir, ".git")); err != nil {
		t.Fatal(err)
	}
	return dir
}

// mostBytes is 20 % above what the program has. Where any of its packages calls methods by names that the linker does not know,
// it keeps all methods of all types, and the program has 51 MB.
const mostBytes = 44_000_000

func small(t *testing.T, dir, arch string) {
	name := "regiond_0.1.0_linux_" + arch
	out, err := exec.CommandContext(t.Context(), "tar", "-xzOf", filepath.Join(dir, name+".tar.gz"), name+"/regiond").Output()
	if err != nil {
		t.Fatal(err)
	}
	if len(out) > mostBytes {
		t.Errorf("the program has %d bytes, more than %d: go build -ldflags=-dumpdep shows <ReflectMethod> where methods are called by name",
			len(out), mostBytes)
	}
}

// billOfMaterials compares the CycloneDX file with what go list says is linked.
func billOfMaterials(t *testing.T, dir, arch string) {
	data, err := os.ReadFile(filepath.Join(dir, "regiond_0.1.0_linux_"+arch+".cdx.json"))
	if err != nil {
		t.Fatal(err)
	}
	var bill struct {
		Metadata struct {
			Component struct{ Name, Version string }
		}
		Components []struct{ Name, Version string }
	}
	if err := json.Unmarshal(data, &bill); err != nil {
		t.Fatal(err)
	}
	if c := bill.Metadata.Component; c.Name != "github.com/regiond/regiond" || c.Version != "v0.1.0" {
		t.Errorf("it is of %+v", c)
	}
	var got []string
	for _, c := range bill.Components {
		if c.Name != "std" {
			got = append(got, c.Name+" "+c.Version)
		}
	}
	list := exec.CommandContext(t.Context(), "go", "list", "-deps", "-f", "{{with .Module}}{{if not .Main}}{{.Path}} {{.Version}}{{end}}{{end}}", "./cmd/regiond")
	list.Dir = "../.."
	list.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux", "GOARCH="+arch)
	out, err := list.Output()
	if err != nil {
		t.Fatal(err)
	}
	want := strings.Split(strings.TrimSpace(string(out)), "\n")
	slices.Sort(want)
	slices.Sort(got)
	if want = slices.Compact(want); !slices.Equal(got, want) {
		t.Errorf("the bill names\n%q\nlinked are\n%q", got, want)
	}
}

// listings reads both packages by the programs of their systems.
func listings(t *testing.T, dir, arch string) {
	lines := func(program string, args ...string) (found []string) {
		t.Helper()
		out, err := exec.CommandContext(t.Context(), program, args...).CombinedOutput()
		if err != nil {
			t.Fatalf("%s %v: %v\n%s", program, args, err, out)
		}
		return strings.Split(strings.TrimSpace(string(out)), "\n")
	}
	deb, rpm := filepath.Join(dir, "regiond_0.1.0_"+arch+".deb"), filepath.Join(dir, rpmName(arch))
	files := map[string][]string{}
	for _, line := range lines("dpkg-deb", "--contents", deb) {
		f := strings.Fields(line)
		if !strings.HasPrefix(line, "d") {
			files["deb"] = append(files["deb"], f[0]+" "+f[1]+" "+strings.TrimPrefix(f[5], "."))
		}
	}
	for _, line := range lines("rpm", "-qp", "--nosignature", "--qf", "[%{FILEMODES:perms} %{FILEUSERNAME}/%{FILEGROUPNAME} %{FILENAMES}\n]", rpm) {
		if !strings.HasPrefix(line, "d") {
			files["rpm"] = append(files["rpm"], line)
		}
	}
	// Where the systems differ.
	elsewhere := strings.NewReplacer("/usr/share/zsh/site-functions/", "/usr/share/zsh/vendor-completions/",
		"/usr/share/licenses/regiond/LICENSE", "/usr/share/doc/regiond/copyright")
	for i, line := range files["rpm"] {
		files["rpm"][i] = elsewhere.Replace(line)
	}
	slices.Sort(files["deb"])
	slices.Sort(files["rpm"])
	if !slices.Equal(files["deb"], files["rpm"]) {
		t.Errorf("the packages differ:\n%s\n%s", strings.Join(files["deb"], "\n"), strings.Join(files["rpm"], "\n"))
	}
	for _, want := range []string{
		"-rwxr-xr-x root/root /usr/bin/regiond", "-rw-r--r-- root/root /usr/lib/systemd/system/regiond.service",
		"-rw-r--r-- root/root /etc/regiond/topology.yaml", "-rw-r--r-- root/root /etc/default/regiond",
		"-rw-r--r-- root/root /usr/share/man/man1/regiond-serve.1.gz", "-rw-r--r-- root/root /usr/share/bash-completion/completions/regiond",
		"-rw-r--r-- root/root /usr/share/zsh/vendor-completions/_regiond",
	} {
		if !slices.Contains(files["deb"], want) {
			t.Errorf("the packages lack %s:\n%s", want, strings.Join(files["deb"], "\n"))
		}
	}
	config := []string{"/etc/default/regiond", "/etc/regiond/topology.yaml"}
	if got := lines("rpm", "-qpc", "--nosignature", rpm); !slices.Equal(got, config) {
		t.Errorf("the rpm keeps changes of %q, want %q", got, config)
	}
	if got := lines("dpkg-deb", "--info", deb, "conffiles"); !slices.Equal(slices.Sorted(slices.Values(got)), config) {
		t.Errorf("the deb keeps changes of %q, want %q", got, config)
	}
	if got := lines("rpm", "-qp", "--nosignature", "--qf", "%{NAME} %{VERSION} %{LICENSE} %{POSTIN} %{PREUN} %{POSTUN} %{PREIN}", rpm); strings.Contains(strings.Join(got, "\n"), "(none)") {
		t.Errorf("the rpm lacks a script:\n%s", strings.Join(got, "\n"))
	}
	scripts, err := filepath.Glob("../../deploy/package/rpm-*")
	if err != nil || len(scripts) != 4 {
		t.Fatal(scripts, err)
	}
	for _, script := range scripts {
		lines("sh", "-n", script)
	}
}

// machine is a container of Debian with systemd as its first process and no network but loopback.
type machine struct{ name string }

// startMachine starts one and waits until it has booted.
func startMachine(t *testing.T) machine {
	t.Helper()
	if out, err := exec.CommandContext(t.Context(), "docker", "version").CombinedOutput(); err != nil {
		t.Skipf("no Docker engine answers here, so nothing was installed: %v: %s", err, out)
	}
	m := machine{fmt.Sprintf("regiond-test-package-%d", os.Getpid())}
	// What systemd needs to make the name spaces of services.
	args := []string{
		"run", "--detach", "--name", m.name, "--network", "none", "--cap-add", "SYS_ADMIN", "--security-opt", "seccomp=unconfined",
		"--security-opt", "apparmor=unconfined", "--tmpfs", "/run", "--tmpfs", "/tmp", "--volume", "/sys/fs/cgroup:/sys/fs/cgroup",
		"--env", "container=docker", "regiond-test/debian:12",
	}
	if out, err := exec.CommandContext(t.Context(), "docker", args...).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s (scripts/package-image makes the image)", err, out)
	}
	t.Cleanup(func() {
		if t.Failed() {
			out, _ := exec.Command("docker", "exec", m.name, "journalctl", "--no-pager", "--lines", "60").CombinedOutput()
			t.Logf("%s", out)
		}
		if out, err := exec.Command("docker", "rm", "--force", "--volumes", m.name).CombinedOutput(); err != nil {
			t.Errorf("%v: %s", err, out)
		}
	})
	m.await(t, "the container boots", "systemctl is-system-running", func(state string, _ error) bool {
		return state == "running" || state == "degraded"
	})
	// A container cannot make user name spaces: the one setting of the units that is left out here.
	m.do(t, `mkdir -p /etc/systemd/system/service.d && printf '[Service]\nPrivateUsers=no\n' >/etc/systemd/system/service.d/container.conf
		systemctl daemon-reload && systemctl reset-failed && systemctl start redis-server`)
	return m
}

// try runs a script in the machine.
func (m machine) try(script string) (output string, err error) {
	out, err := exec.Command("docker", "exec", m.name, "sh", "-ec", script).CombinedOutput()
	return strings.TrimSpace(string(out)), err
}

// do is try, and the test ends if that fails.
func (m machine) do(t *testing.T, script string) (output string) {
	t.Helper()
	out, err := m.try(script)
	if err != nil {
		t.Fatalf("%s: %v\n%s", script, err, out)
	}
	return out
}

// await tries a script again and again until it ends so, for a minute.
func (m machine) await(t *testing.T, what, script string, so func(output string, err error) bool) {
	t.Helper()
	eventually(t, time.Minute, func() error {
		out, err := m.try(script)
		if so(out, err) {
			return nil
		}
		return fmt.Errorf("%s: now %q", what, out)
	})
}

// put copies a package into the machine.
func (m machine) put(t *testing.T, file, to string) {
	t.Helper()
	if out, err := exec.CommandContext(t.Context(), "docker", "cp", file, m.name+":"+to).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
}

// ready waits until regiond answers /readyz.
func (m machine) ready(t *testing.T) {
	t.Helper()
	m.await(t, "regiond is ready", "regiond healthcheck", func(_ string, err error) bool { return err == nil })
}

// remaining charges a tenant 20 units, in whichever second the burst allows it, and returns what is left of its long limit. A
// busy machine may shed or decide in memory: neither is counted in Redis, so it asks again.
func (m machine) remaining(t *testing.T) (left int64) {
	t.Helper()
	m.await(t, "Redis decides a check", "regiond check acme --cost 20 -o json", func(out string, _ error) bool {
		var a struct {
			Allowed bool
			Mode    string
			Limits  []struct {
				Name      string
				Remaining int64
			}
		}
		if err := json.Unmarshal([]byte(out), &a); err != nil || !a.Allowed || a.Mode == "local" || len(a.Limits) != 2 {
			return false
		}
		left = a.Limits[1].Remaining
		return true
	})
	return left
}

// lifecycle is a package's life on one machine, with systemd, dpkg and Redis as they are.
func lifecycle(t *testing.T, first, second string) {
	m := startMachine(t)
	m.put(t, first, "/root/first.deb")
	m.put(t, second, "/root/second.deb")

	m.do(t, "dpkg --install /root/first.deb")
	m.ready(t)
	if out := m.do(t, "regiond check acme"); !strings.HasPrefix(out, "allowed") {
		t.Errorf("as installed it answers %s", out)
	}
	if out := m.do(t, "systemd-analyze verify --man=no regiond.service 2>&1 | grep regiond || true"); out != "" {
		t.Errorf("systemd on the unit: %s", out)
	}
	if out := m.do(t, "systemctl is-enabled regiond && ps -o user= -C regiond"); out != "enabled\nregiond" {
		t.Errorf("it is %q, want enabled, and to run as regiond", out)
	}

	// As docs/deploy.md says: edit the file, check it, restart. An hour is longer than this test.
	m.do(t, `sed -i 's/^    # redis:/    redis:/; s/per: 1m/per: 1h/' /etc/regiond/topology.yaml
		regiond validate /etc/regiond/topology.yaml && systemctl restart regiond`)
	m.ready(t)
	if left := m.remaining(t); left != 580 {
		t.Errorf("of 600 units 20 leave %d", left)
	}

	// An upgrade restarts it and keeps the edited file; Redis keeps what was used.
	pid := m.do(t, "systemctl show -P MainPID regiond")
	m.do(t, "dpkg --install /root/second.deb")
	m.ready(t)
	commit, err := exec.CommandContext(t.Context(), "git", "rev-parse", "HEAD").Output()
	if err != nil {
		t.Fatal(err)
	}
	out := m.do(t, "regiond version -o json")
	if !strings.Contains(out, `"v0.1.1"`) || !strings.Contains(out, strings.TrimSpace(string(commit))) || strings.Contains(out, "unknown") {
		t.Errorf("after the upgrade it reports %s, of commit %s", out, commit)
	}
	now := m.do(t, "systemctl show -P MainPID regiond")
	if log := m.do(t, "journalctl --no-pager --output cat _PID="+now); now == pid || !strings.Contains(log, `"version":"v0.1.1"`) {
		t.Errorf("process %s became %s, which logs\n%s", pid, now, log)
	}
	if left := m.remaining(t); left != 560 {
		t.Errorf("after the upgrade 20 more units leave %d of 600", left)
	}

	m.do(t, "systemctl reload regiond")

	// A version that refuses the file does not replace one that serves.
	m.do(t, "cp /etc/regiond/topology.yaml /root && echo nonsense: true >>/etc/regiond/topology.yaml")
	out = m.do(t, "dpkg --install /root/first.deb 2>&1")
	if pid := m.do(t, "systemctl show -P MainPID regiond"); pid != now || !strings.Contains(out, "the version before goes on") {
		t.Errorf("with a mistake in the file process %s became %s:\n%s", now, pid, out)
	}
	m.do(t, "cp /root/topology.yaml /etc/regiond/")

	// A stop drains: not ready any more, it still answers; then it ends well.
	m.do(t, "systemctl stop --no-block regiond")
	m.await(t, "a stop makes it unready", "regiond healthcheck", func(_ string, err error) bool { return err != nil })
	if out, err := m.try("regiond check other"); err != nil {
		t.Errorf("while it drains: %v: %s", err, out)
	}
	m.await(t, "it stops", "systemctl is-active regiond", func(state string, _ error) bool { return state == "inactive" })
	if out := m.do(t, "systemctl show -P Result regiond"); out != "success" {
		t.Errorf("the stop's result is %s", out)
	}

	m.do(t, "systemctl start regiond && mkdir -p /var/log/regiond && dpkg --purge regiond")
	if out := m.do(t, `for f in /etc/regiond /etc/default/regiond /var/log/regiond /usr/bin/regiond /usr/share/doc/regiond; do [ ! -e $f ] || echo $f; done
		getent passwd regiond || true; getent group regiond || true
		find /etc/systemd /lib/systemd /var/lib/systemd -name '*regiond*'`); out != "" {
		t.Errorf("a purge leaves\n%s", out)
	}
}
