package daemon

import (
	"context"
	"crypto/sha256"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/fsnotify/fsnotify"

	"github.com/regiond/regiond/internal/files"
	"github.com/regiond/regiond/region"
)

const (
	// settle is how long files must have been quiet before a reload: editors and mounts
	// change several in a row.
	settle = 100 * time.Millisecond
	// maxSettle bounds the wait for quiet, since another program may write in the same
	// folder all the time.
	maxSettle = 10 * settle
	// hangTimeout is how long a stop waits for a reload, which takes milliseconds unless
	// a file hangs.
	hangTimeout = time.Second
)

// watcher reloads when the contents of a file have changed, and at SIGHUP. Only its run
// reloads, so that two reloads never overlap.
type watcher struct {
	reload  func(why string) (files []string)
	log     *slog.Logger
	hangUps chan struct{} // has an element while SIGHUP asks for a reload

	files []string // to watch; with none only SIGHUP reloads
	seen  [sha256.Size]byte
}

// newWatcher remembers what is in the files now.
func newWatcher(files []string, reload func(why string) []string, log *slog.Logger) *watcher {
	return &watcher{reload: reload, log: log, hangUps: make(chan struct{}, 1), files: files, seen: fingerprint(files)}
}

// hangUp has run reload soon.
func (w *watcher) hangUp() {
	select {
	case w.hangUps <- struct{}{}:
	default: // the reload that is due reads the same files
	}
}

// run reloads until ctx ends. A read of a file can hang, as on a server that is gone,
// and cannot be cancelled: after hangTimeout run returns without it.
func (w *watcher) run(ctx context.Context) error {
	done := make(chan struct{})
	go func() {
		defer close(done)
		w.watch(ctx)
	}()
	<-ctx.Done()
	timeout := time.NewTimer(hangTimeout)
	defer timeout.Stop()
	select {
	case <-done:
	case <-timeout.C:
		w.log.Warn("a reload hangs: stopping without it")
	}
	return nil
}

// watch watches folders, because a replaced file is another file.
func (w *watcher) watch(ctx context.Context) {
	var events <-chan fsnotify.Event // nil channels never fire
	var failures <-chan error
	var notify *fsnotify.Watcher
	if len(w.files) > 0 {
		var err error
		if notify, err = fsnotify.NewWatcher(); err != nil {
			w.log.Warn("files are not watched: send SIGHUP to reload", "error", err)
		} else {
			defer notify.Close()
			events, failures = notify.Events, notify.Errors
			w.follow(notify)
		}
	}
	quiet := time.NewTimer(settle) // once at the start, for a change since the files were read
	defer quiet.Stop()
	unsettled := time.Now()
	for {
		select {
		case <-ctx.Done():
			return
		case <-w.hangUps:
			w.files = w.reload("SIGHUP")
			quiet.Reset(settle) // it may name other files
		case <-events:
			if unsettled.IsZero() {
				unsettled = time.Now()
			}
			if time.Since(unsettled) < maxSettle {
				quiet.Reset(settle)
			}
		case err := <-failures:
			w.log.Warn("watching the configuration", "error", err)
			quiet.Reset(settle) // events may have been lost
		case <-quiet.C:
			unsettled = time.Time{}
			if notify == nil {
				continue
			}
			w.follow(notify)
			if now := fingerprint(w.files); now != w.seen {
				w.files = w.reload("file changed")
				// A file may have changed again since it was read, or the new topology
				// names other files, so compare once more.
				w.seen = now
				quiet.Reset(settle)
			}
		}
	}
}

// follow watches the folders of all files, and of what symlinks lead to.
func (w *watcher) follow(notify *fsnotify.Watcher) {
	for _, file := range w.files {
		paths := []string{file}
		if target, err := filepath.EvalSymlinks(file); err == nil && target != file {
			paths = append(paths, target)
		} else if target, err := os.Readlink(file); err == nil { // to what is not there yet
			if !filepath.IsAbs(target) {
				target = filepath.Join(filepath.Dir(file), target)
			}
			paths = append(paths, target)
		}
		for _, p := range paths {
			if err := notify.Add(filepath.Dir(p)); err != nil {
				w.log.Warn("a folder is not watched: send SIGHUP to reload", "folder", filepath.Dir(p), "error", err)
			}
		}
	}
}

// fingerprint is a hash of the contents of files.
func fingerprint(files []string) [sha256.Size]byte {
	h := sha256.New()
	for _, file := range files {
		sum := fileSum(file)
		h.Write(sum[:])
	}
	return [sha256.Size]byte(h.Sum(nil))
}

// fileSum is a hash of a file's name and contents, or of why it cannot be read.
func fileSum(file string) [sha256.Size]byte {
	h := sha256.New()
	content, err := files.Read(file)
	fmt.Fprintf(h, "%s %d %v ", file, len(content), err)
	h.Write(content)
	return [sha256.Size]byte(h.Sum(nil))
}

// watchedFiles are the topology file and those that it names; none without one.
func watchedFiles(configFile string, top *region.Topology, name string) []string {
	if configFile == "" {
		return nil
	}
	a := top.Access
	files := []string{
		configFile, a.TokensFile, a.AdminTokensFile, a.ClientCAFile, a.CertFile, a.KeyFile,
		a.AdminClientCAFile, a.AdminCertFile, a.AdminKeyFile,
	}
	for i := range top.RLS.Domains {
		files = append(files, top.RLS.Domains[i].Paths(configFile)...)
	}
	if r, ok := top.Region(name); ok {
		files = append(files, r.Redis.PasswordFile)
		if r.Gossip != nil {
			files = append(files, r.Gossip.KeyFile)
		}
		for _, f := range readOnce(r) {
			files = append(files, f.path)
		}
		for _, t := range []*region.TLS{r.Redis.TLS, r.NATS.TLS} {
			if t != nil {
				files = append(files, t.CertFile, t.KeyFile)
			}
		}
	}
	return slices.DeleteFunc(files, func(f string) bool { return f == "" })
}
