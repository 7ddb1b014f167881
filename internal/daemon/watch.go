package daemon

import (
	"context"
	"crypto/sha256"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/regiond/regiond/internal/base/files"
	"github.com/regiond/regiond/internal/base/signal"
	"github.com/regiond/regiond/region"
)

const (
	// watchInterval is how often the files are read: a change is in force about as long after it was made.
	watchInterval = time.Second
	// settle is how long files must have been quiet before a reload: editors and mounts
	// change several in a row.
	settle = 100 * time.Millisecond
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
	every   time.Duration // watchInterval, and less in tests

	files []string // to watch; with none only SIGHUP reloads
	seen  [sha256.Size]byte
}

// newWatcher remembers what is in the files now.
func newWatcher(files []string, reload func(why string) []string, log *slog.Logger) *watcher {
	return &watcher{
		reload: reload, log: log, hangUps: make(chan struct{}, 1), every: watchInterval,
		files: files, seen: fingerprint(files...),
	}
}

// hangUp has run reload soon.
func (w *watcher) hangUp() { signal.Send(w.hangUps) }

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

// watch compares what is in the files, and not what the system reports of them: that way it
// does not matter how a file was replaced, nor what leads to it.
func (w *watcher) watch(ctx context.Context) {
	timer := time.NewTimer(w.every)
	defer timer.Stop()
	before := w.seen
	for {
		select {
		case <-ctx.Done():
			return
		case <-w.hangUps:
			w.files = w.reload("SIGHUP")
		case <-timer.C:
			now, next := fingerprint(w.files...), w.every
			if now != w.seen && now != before {
				next = settle
			} else if now != w.seen {
				// Of before the reload: a file may change while it is read, or the new
				// topology names other files, which is compared the next time.
				w.seen = now
				w.files = w.reload("file changed")
			}
			before = now
			timer.Reset(next)
		}
	}
}

// fingerprint is a hash of the names and contents of files, or of why one cannot be read.
func fingerprint(names ...string) [sha256.Size]byte {
	h := sha256.New()
	for _, name := range names {
		content, err := files.Read(name)
		if err != nil {
			content = nil // which may be random
		}
		fmt.Fprintf(h, "%s %d %v ", name, len(content), err)
		h.Write(content)
	}
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
		for _, file := range onceFiles(r) {
			files = append(files, file[1])
		}
		for _, t := range []*region.TLS{r.Redis.TLS, r.NATS.TLS} {
			if t != nil {
				files = append(files, t.CertFile, t.KeyFile)
			}
		}
	}
	return slices.DeleteFunc(files, func(f string) bool { return f == "" })
}
