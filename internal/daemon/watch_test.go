package daemon

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/regiond/regiond/test/capture"
)

// watched runs a watcher of one file until the test ends. Each reload stores what is in
// the file.
func watched(t *testing.T, file string) (w *watcher, content *atomic.Pointer[string]) {
	t.Helper()
	content = &atomic.Pointer[string]{}
	w = newWatcher([]string{file}, func(string) []string {
		b, err := os.ReadFile(file)
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			t.Error(err)
		}
		text := string(b)
		content.Store(&text)
		return []string{file}
	}, slog.New(slog.DiscardHandler))
	w.every = settle
	return w, content
}

func awaitContent(t *testing.T, content *atomic.Pointer[string], want string) {
	t.Helper()
	capture.Eventually(t, func() error {
		if got := content.Load(); got == nil || *got != want {
			return fmt.Errorf("the last reload has read %v, want %q", got, want)
		}
		return nil
	})
}

// TestFileChanges: a file may change in any of these ways, twice.
func TestFileChanges(t *testing.T) {
	inFolder := func(dir string) string { return filepath.Join(dir, "topology.yaml") }
	for _, way := range []struct {
		name   string
		create func(t *testing.T, dir, content string)
		change func(t *testing.T, dir, content string)
	}{
		{"written in place", writeFile, writeFile},
		{"renamed onto", writeFile, func(t *testing.T, dir, content string) { put(t, inFolder(dir), content) }},
		{"deleted and written", writeFile, func(t *testing.T, dir, content string) {
			if err := os.Remove(inFolder(dir)); err != nil {
				t.Fatal(err)
			}
			writeFile(t, dir, content)
		}},
		{"a symlink to another folder", linkFile, linkFile},
		{"behind a symlink", linkFile, func(t *testing.T, dir, content string) {
			target, err := os.Readlink(inFolder(dir))
			if err != nil {
				t.Fatal(err)
			}
			write(t, target, content)
		}},
		{"a mounted ConfigMap", func(t *testing.T, dir, content string) {
			mount(t, dir, content)
			link(t, filepath.Join("..data", "topology.yaml"), inFolder(dir))
		}, mount},
	} {
		t.Run(way.name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			way.create(t, dir, "one")
			w, content := watched(t, inFolder(dir))
			runUntilCleanup(t, w.run)
			way.change(t, dir, "two")
			awaitContent(t, content, "two")
			way.change(t, dir, "three")
			awaitContent(t, content, "three")
		})
	}
}

// TestDanglingLink: a symlink may be there before the file to which it leads.
func TestDanglingLink(t *testing.T) {
	t.Parallel()
	dir, elsewhere := t.TempDir(), t.TempDir()
	file := filepath.Join(dir, "topology.yaml")
	link(t, filepath.Join(elsewhere, "topology.yaml"), file)
	w, content := watched(t, file)
	runUntilCleanup(t, w.run)
	writeFile(t, elsewhere, "one")
	awaitContent(t, content, "one")
}

func writeFile(t *testing.T, dir, content string) {
	t.Helper()
	write(t, filepath.Join(dir, "topology.yaml"), content)
}

// version writes the content into a new folder of its own.
func version(t *testing.T, dir, content string) string {
	t.Helper()
	sub, err := os.MkdirTemp(dir, "version-")
	if err != nil {
		t.Fatal(err)
	}
	writeFile(t, sub, content)
	return sub
}

func linkFile(t *testing.T, dir, content string) {
	t.Helper()
	link(t, filepath.Join(version(t, dir, content), "topology.yaml"), filepath.Join(dir, "topology.yaml"))
}

// mount replaces ..data as Kubernetes does in a mounted ConfigMap, and removes the
// folder that it led to before.
func mount(t *testing.T, dir, content string) {
	t.Helper()
	data := filepath.Join(dir, "..data")
	before, err := os.Readlink(data)
	link(t, filepath.Base(version(t, dir, content)), data)
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

// TestChangeOutsideTheWatch: a change is not lost between reading the file and watching
// it, nor while a reload is under way.
func TestChangeOutsideTheWatch(t *testing.T) {
	dir := t.TempDir()
	writeFile(t, dir, "one")
	w, content := watched(t, filepath.Join(dir, "topology.yaml"))
	writeFile(t, dir, "two")
	reload, again := w.reload, sync.OnceFunc(func() { writeFile(t, dir, "three") })
	w.reload = func(why string) []string {
		files := reload(why)
		again()
		return files
	}
	runUntilCleanup(t, w.run)
	awaitContent(t, content, "three")
}

// TestBusyFolder: another program that writes all the time does not hold off a reload.
func TestBusyFolder(t *testing.T) {
	dir := t.TempDir()
	writeFile(t, dir, "one")
	w, content := watched(t, filepath.Join(dir, "topology.yaml"))
	runUntilCleanup(t, w.run)
	stop := make(chan struct{})
	var busy sync.WaitGroup
	busy.Go(func() {
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			default:
			}
			if err := os.WriteFile(filepath.Join(dir, "other.log"), fmt.Append(nil, i), 0o600); err != nil {
				t.Error(err)
				return
			}
		}
	})
	defer busy.Wait()
	defer close(stop)
	writeFile(t, dir, "two")
	awaitContent(t, content, "two")
}

// TestWatchedFiles: those that a topology names are watched from the start.
func TestWatchedFiles(t *testing.T) {
	tokens := filepath.Join(t.TempDir(), "tokens")
	write(t, tokens, tokenLine("ci", "secret"))
	file := filepath.Join(t.TempDir(), "topology.yaml")
	write(t, file, inMemory()+"access: {tokens_file: "+tokens+"}\n")
	p := build(t, "--config", file, "--region", "town")
	if got, want := p.daemon.watcher.files, []string{file, tokens}; !slices.Equal(got, want) {
		t.Errorf("it watches %q, want %q", got, want)
	}
}

// TestHalfWritten: a reload waits until a file stays as it is, and nothing is reloaded while
// nothing changes. A file that cannot be read is as it was, whatever was read of it.
func TestHalfWritten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		file := filepath.Join(dir, "topology.yaml")
		writeFile(t, dir, "")
		began := time.Now()
		var reloads []time.Duration
		w := newWatcher([]string{file}, func(string) []string {
			reloads = append(reloads, time.Since(began))
			return []string{file}
		}, slog.New(slog.DiscardHandler))
		ctx, cancel := context.WithCancel(t.Context())
		stopped := make(chan error)
		go func() { stopped <- w.run(ctx) }()
		time.Sleep(watchInterval - settle/2) // of four writes the first one is seen
		for _, content := range []string{"o", "on", "one", "one\n"} {
			writeFile(t, dir, content)
			time.Sleep(settle * 7 / 10) // never at the moment of a read
		}
		time.Sleep(3 * watchInterval)
		link(t, "/dev/urandom", file)
		time.Sleep(3 * watchInterval)
		cancel()
		if err := <-stopped; err != nil {
			t.Error(err)
		}
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

// runUntilCleanup runs a component until the test ends.
func runUntilCleanup(t *testing.T, c component) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- c(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}
