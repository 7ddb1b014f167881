package daemon

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/regiond/regiond/internal/base/files"
)

// noticed is in how long a change is in force that nothing follows.
const noticed = watchInterval + 2*settle

// watch runs a watcher of a file in a bubble of fake time and returns what each reload has read.
func watch(t *testing.T, file string, then func()) (contents *[]string) {
	t.Helper()
	contents = &[]string{}
	w := newWatcher([]string{file}, func(string) []string {
		b, _ := files.Read(file) // "" for what is no file
		*contents = append(*contents, string(b))
		then()
		return []string{file}
	}, slog.New(slog.DiscardHandler))
	ctx, cancel := context.WithCancel(t.Context())
	stopped := make(chan error)
	go func() { stopped <- w.run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-stopped; err != nil {
			t.Error(err)
		}
	})
	return contents
}

// TestFileChanges: a file may change in any of these ways, and nothing is reloaded while nothing changes.
func TestFileChanges(t *testing.T) {
	for name, way := range map[string]struct {
		create, change func(t *testing.T, dir, content string)
	}{
		"written in place": {writeFile, writeFile},
		"renamed onto": {writeFile, func(t *testing.T, dir, content string) {
			put(t, filepath.Join(dir, "topology.yaml"), content)
		}},
		"a mounted ConfigMap": {func(t *testing.T, dir, content string) {
			mount(t, dir, content)
			link(t, filepath.Join("..data", "topology.yaml"), filepath.Join(dir, "topology.yaml"))
		}, mount},
		"a symlink that is there before the file": {func(t *testing.T, dir, _ string) {
			link(t, filepath.Join(dir, "..data", "topology.yaml"), filepath.Join(dir, "topology.yaml"))
		}, mount},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				dir := t.TempDir()
				way.create(t, dir, "one")
				contents := watch(t, filepath.Join(dir, "topology.yaml"), func() {})
				for _, content := range []string{"two", "three"} {
					time.Sleep(noticed)
					way.change(t, dir, content)
				}
				time.Sleep(3 * watchInterval)
				synctest.Wait()
				if !slices.Equal(*contents, []string{"two", "three"}) {
					t.Errorf("it has read %q", *contents)
				}
			})
		})
	}
}

func writeFile(t *testing.T, dir, content string) {
	t.Helper()
	write(t, filepath.Join(dir, "topology.yaml"), content)
}

// mount replaces ..data as Kubernetes does in a mounted ConfigMap, and removes the
// folder that it led to before.
func mount(t *testing.T, dir, content string) {
	t.Helper()
	version, err := os.MkdirTemp(dir, "version-")
	if err != nil {
		t.Fatal(err)
	}
	writeFile(t, version, content)
	data := filepath.Join(dir, "..data")
	before, err := os.Readlink(data)
	link(t, filepath.Base(version), data)
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
	if err := os.Rename(file+".tmp", file); err != nil {
		t.Fatal(err)
	}
}

// TestChangeWhileReloading: a change is not lost while a reload is under way.
func TestChangeWhileReloading(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		writeFile(t, dir, "one")
		contents := watch(t, filepath.Join(dir, "topology.yaml"), sync.OnceFunc(func() { writeFile(t, dir, "three") }))
		writeFile(t, dir, "two")
		time.Sleep(2 * noticed)
		synctest.Wait()
		if !slices.Equal(*contents, []string{"two", "three"}) {
			t.Errorf("it has read %q", *contents)
		}
	})
}

// TestWatchedFiles: those that a topology names are watched from the start.
func TestWatchedFiles(t *testing.T) {
	tokens := filepath.Join(t.TempDir(), "tokens")
	write(t, tokens, tokenLine("ci", "secret"))
	file := topologyFile(t, inMemory()+"access: {tokens_file: "+tokens+"}\n")
	p := build(t, "--config", file, "--region", "town")
	if got, want := p.daemon.watcher.files, []string{file, tokens}; !slices.Equal(got, want) {
		t.Errorf("it watches %q, want %q", got, want)
	}
}

// TestHalfWritten: a reload waits until a file stays as it is. A file that cannot be read is as it
// was, whatever was read of it.
func TestHalfWritten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		file := filepath.Join(dir, "topology.yaml")
		writeFile(t, dir, "")
		began := time.Now()
		var reloads []time.Duration
		watch(t, file, func() { reloads = append(reloads, time.Since(began)) })
		time.Sleep(watchInterval - settle/2) // of four writes the first one is seen
		for _, content := range []string{"o", "on", "one", "one\n"} {
			writeFile(t, dir, content)
			time.Sleep(settle * 7 / 10) // never at the moment of a read
		}
		time.Sleep(3 * watchInterval)
		link(t, "/dev/urandom", file)
		time.Sleep(3 * watchInterval)
		synctest.Wait()
		if n := len(reloads); n != 2 || reloads[0] < watchInterval+2*settle || reloads[0] > 2*watchInterval {
			t.Errorf("it reloads %v after the start, want once after the last write and once for the device", reloads)
		}
	})
}

// TestStopsWhileAReloadHangs: a reload that hangs, as when it reads a file from a server
// that is gone, does not keep the process from stopping.
func TestStopsWhileAReloadHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		over := make(chan struct{})
		w := newWatcher(nil, func(string) []string { <-over; return nil }, slog.New(slog.DiscardHandler))
		ctx, cancel := context.WithCancel(t.Context())
		stopped := make(chan error)
		go func() { stopped <- w.run(ctx) }()
		w.hangUp()
		synctest.Wait()
		cancel()
		began := time.Now()
		if err := <-stopped; err != nil || time.Since(began) != hangTimeout {
			t.Errorf("it stops after %v: %v", time.Since(began), err)
		}
		close(over)
	})
}
