package daemon

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/fsnotify/fsnotify"
)

// TestAFileThatChanges: however a file comes to have other content, the limit is
// another one at once, for tenants that have used some of it too.
func TestAFileThatChanges(t *testing.T) {
	for _, way := range []struct {
		name   string
		lay    func(t *testing.T, dir, content string) string // returns the path to serve
		change func(t *testing.T, dir, content string)
	}{
		{"written in place", layFile, func(t *testing.T, dir, content string) {
			write(t, filepath.Join(dir, "topology.yaml"), content)
		}},
		{"renamed onto", layFile, func(t *testing.T, dir, content string) {
			put(t, filepath.Join(dir, "topology.yaml"), content)
		}},
		{"deleted and written", layFile, func(t *testing.T, dir, content string) {
			if err := os.Remove(filepath.Join(dir, "topology.yaml")); err != nil {
				t.Fatal(err)
			}
			write(t, filepath.Join(dir, "topology.yaml"), content)
		}},
		{"a symlink to another folder", layLink, func(t *testing.T, dir, content string) {
			link(t, other(t, dir, content), filepath.Join(dir, "topology.yaml"))
		}},
		{"behind a symlink", layLink, func(t *testing.T, dir, content string) {
			target, err := os.Readlink(filepath.Join(dir, "topology.yaml"))
			if err != nil {
				t.Fatal(err)
			}
			write(t, target, content)
		}},
		{"a mounted ConfigMap", layMount, mount},
	} {
		t.Run(way.name, func(t *testing.T) {
			dir := t.TempDir()
			p := startFile(t, way.lay(t, dir, inMemory()))
			p.inForce(t, 5)
			for range 4 {
				p.check(t, "acme").is(t, http.StatusOK)
			}
			before := p.daemon.hash()
			way.change(t, dir, limited(t, inMemory(), 3))
			p.inForce(t, 3)
			p.check(t, "acme").is(t, http.StatusTooManyRequests) // 4 of 3
			if now := p.daemon.hash(); now == before {
				t.Errorf("the hash is %s before and after", now)
			}
			way.change(t, dir, limited(t, inMemory(), 8)) // a second change is seen as well
			p.inForce(t, 8)
			if left := p.left(t, "acme"); left != 4 {
				t.Errorf("%d of 8 remain after 4", left)
			}
		})
	}
}

func layFile(t *testing.T, dir, content string) string {
	t.Helper()
	file := filepath.Join(dir, "topology.yaml")
	write(t, file, content)
	return file
}

// other writes the content into a new folder of its own.
func other(t *testing.T, dir, content string) string {
	t.Helper()
	sub, err := os.MkdirTemp(dir, "version-")
	if err != nil {
		t.Fatal(err)
	}
	return layFile(t, sub, content)
}

func layLink(t *testing.T, dir, content string) string {
	t.Helper()
	file := filepath.Join(dir, "topology.yaml")
	link(t, other(t, dir, content), file)
	return file
}

// layMount lays files as Kubernetes mounts a ConfigMap: topology.yaml links to
// ..data/topology.yaml, and ..data to a folder with a date for a name.
func layMount(t *testing.T, dir, content string) string {
	t.Helper()
	mount(t, dir, content)
	file := filepath.Join(dir, "topology.yaml")
	link(t, filepath.Join("..data", "topology.yaml"), file)
	return file
}

// mount replaces ..data, and removes the folder that it led to before.
func mount(t *testing.T, dir, content string) {
	t.Helper()
	data := filepath.Join(dir, "..data")
	before, err := os.Readlink(data)
	link(t, filepath.Base(filepath.Dir(other(t, dir, content))), data)
	if err == nil {
		if err := os.RemoveAll(filepath.Join(dir, before)); err != nil {
			t.Fatal(err)
		}
	}
}

// link replaces a symlink at once, as `ln -sfT` and kubelet do.
func link(t *testing.T, target, file string) {
	t.Helper()
	if err := os.Symlink(target, file+".tmp"); err != nil {
		t.Fatal(err)
	}
	rename(t, file+".tmp", file)
}

func rename(t *testing.T, from, to string) {
	t.Helper()
	if err := os.Rename(from, to); err != nil {
		t.Fatal(err)
	}
}

// TestAChangeBeforeTheWatch: what happens between reading the file and watching
// it is not lost.
func TestAChangeBeforeTheWatch(t *testing.T) {
	file := layFile(t, t.TempDir(), inMemory())
	p := build(t, "--config", file, "--region", "town")
	write(t, file, limited(t, inMemory(), 6))
	p.run(t)
	p.inForce(t, 6)
	p.stop()
	if n := len(p.log.lines("reloaded")); n != 1 {
		t.Errorf("reloaded %d times, want once", n)
	}
}

// TestAChangeDuringTheReload: nor is one that happens while the file before it is
// being put in force.
func TestAChangeDuringTheReload(t *testing.T) {
	file := layFile(t, t.TempDir(), inMemory())
	p := build(t, "--config", file, "--region", "town")
	third := limited(t, inMemory(), 7)
	again := sync.OnceFunc(func() {
		if err := os.WriteFile(file, []byte(third), 0o600); err != nil {
			t.Error(err)
		}
	})
	p.log.hook = func(line string) {
		if strings.Contains(line, `"msg":"reloaded"`) {
			again()
		}
	}
	p.run(t)
	write(t, file, limited(t, inMemory(), 6))
	p.inForce(t, 7)
}

// TestABusyFolder: a neighbour that writes all the time does not hold off a reload.
func TestABusyFolder(t *testing.T) {
	p := start(t, inMemory())
	stop := make(chan struct{})
	var busy sync.WaitGroup
	busy.Go(func() {
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			default:
			}
			if err := os.WriteFile(filepath.Join(filepath.Dir(p.file), "neighbour.log"), fmt.Append(nil, i), 0o600); err != nil {
				t.Error(err)
				return
			}
		}
	})
	defer busy.Wait()
	defer close(stop)
	p.rewrite(t, "units: 5,", "units: 6,")
	p.inForce(t, 6)
}

// TestWhatIsWatched: the folders of what is read, and of what links lead to.
func TestWhatIsWatched(t *testing.T) {
	dir, secrets := t.TempDir(), t.TempDir()
	tokens := filepath.Join(secrets, "tokens")
	write(t, tokens, tokenLine("ci", "secret"))
	file := layLink(t, dir, inMemory()+"access: {tokens_file: "+tokens+"}\n")
	target, err := os.Readlink(file)
	if err != nil {
		t.Fatal(err)
	}
	p := build(t, "--config", file, "--region", "town")
	p.run(t)
	w, err := fsnotify.NewWatcher()
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	p.daemon.watcher.follow(w)
	want := []string{dir, filepath.Dir(target), secrets}
	slices.Sort(want)
	if got := slices.Sorted(slices.Values(w.WatchList())); !slices.Equal(got, want) {
		t.Errorf("it watches %q, want %q", got, want)
	}
}
