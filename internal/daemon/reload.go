package daemon

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/fsnotify/fsnotify"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/regiond/regiond/region"
)

// The results of a reload, as metrics name them.
const (
	reloadOK     = "ok"
	reloadFailed = "failed"
)

// reloadMetrics tell whether what is in force is what is in the file.
type reloadMetrics struct{ reloads metric.Int64Counter }

func newReloadMetrics(m metric.Meter, hash func() string) (reloadMetrics, error) {
	reloads, err := m.Int64Counter("regiond.config.reloads", metric.WithUnit("{reload}"),
		metric.WithDescription("Reloads of the topology, by result."))
	_, err2 := m.Int64ObservableGauge("regiond.config.info", metric.WithDescription("1, labelled with the hash of the configuration in force."),
		metric.WithInt64Callback(func(_ context.Context, o metric.Int64Observer) error {
			o.Observe(1, metric.WithAttributes(attribute.String("hash", hash())))
			return nil
		}))
	if err := errors.Join(err, err2); err != nil {
		return reloadMetrics{}, err
	}
	for _, result := range []string{reloadOK, reloadFailed} { // there from the start, for rate()
		reloads.Add(context.Background(), 0, metric.WithAttributes(attribute.String("result", result)))
	}
	return reloadMetrics{reloads}, nil
}

func (m reloadMetrics) done(result string) {
	m.reloads.Add(context.Background(), 1, metric.WithAttributes(attribute.String("result", result)))
}

// apply puts a topology in force: everything that can change while serving. It
// reads the secrets first, so that a mistake changes nothing.
func (d *Daemon) apply(top *region.Topology) error {
	self, ok := top.Region(d.options.Region)
	if !ok {
		return fmt.Errorf("the topology has no region %q any more", d.options.Region)
	}
	settings, err := doorSettings(top)
	if err != nil {
		return err
	}
	password, err := readSecret(self.Redis.PasswordFile)
	if err != nil {
		return err
	}
	certificates, err := readServerTLS(top.Access)
	if err != nil {
		return err
	}
	if err := checkClientTLS(top, self); err != nil {
		return err
	}
	if d.limiter != nil {
		if len(top.Regions) > 1 && d.neighbours == nil {
			return errors.New("a second region needs a restart: this process was started without a way to others")
		}
		if err := d.limiter.Configure(d.limiterConfig(top)); err != nil {
			return err
		}
	}
	if d.tls == nil && d.limiter == nil && certificates != nil {
		d.tls = &serverTLS{}
	}
	if d.tls != nil && certificates != nil {
		d.tls.config.Store(certificates)
	}
	// A listener in the clear can be shown no certificate; asking for one would lock
	// everybody out until the restart that it takes.
	settings.Access.ClientCA = settings.Access.ClientCA && d.tls != nil
	d.settings.Store(settings)
	d.password.Store(&password)
	d.level.Set(top.LogLevel)
	d.topology.Store(top)
	if d.neighbours != nil {
		d.neighbours.configure(top)
	}
	return nil
}

// reload reads the topology again. A mistake keeps what is in force.
func (d *Daemon) reload(why string) {
	if d.options.Config == "" {
		d.log.Info("nothing to reload: serving without a configuration file")
		return
	}
	before := d.topology.Load()
	top, warnings, err := d.options.LoadTopology()
	if err == nil {
		err = d.apply(top)
	}
	if err != nil {
		d.reloads.done(reloadFailed)
		d.log.Error("reload: the configuration in force stays", "why", why, "config_hash", before.Hash(), "error", err)
		return
	}
	for _, w := range warnings {
		d.log.Warn(w.Text(d.options.Config))
	}
	d.reloads.done(reloadOK)
	d.log.Info("reloaded", "why", why, "config_hash", top.Hash(), "before", before.Hash())
	if fields := d.needRestart(top); len(fields) > 0 {
		d.log.Warn("these changes need a restart", "fields", strings.Join(fields, ", "))
	}
}

const (
	// settle is how long the files must have been quiet: editors and mounts change
	// several in a row.
	settle = 100 * time.Millisecond
	// patience bounds the wait for quiet: something else may write in the folder
	// all the time.
	patience = 10 * settle
	// hangPatience is how long a stop waits for a reload under way, which takes
	// milliseconds unless a file hangs.
	hangPatience = time.Second
)

// watch is the only one that reloads: when the topology or a secret changes, and at
// SIGHUP. A file can hang, as on a server that is gone, and a read of it cannot be
// called off: after hangPatience the process stops without waiting for it.
func (d *Daemon) watch(ctx context.Context) error {
	done := make(chan struct{})
	go func() {
		defer close(done)
		d.watchFiles(ctx)
	}()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
	}
	late := time.NewTimer(hangPatience)
	defer late.Stop()
	select {
	case <-done:
	case <-late.C:
		d.log.Warn("a reload hangs: stopping without it")
	}
	return nil
}

// watchFiles reloads until ctx ends. It watches folders, because a replaced file is
// another file, and sees a replaced symlink, too.
func (d *Daemon) watchFiles(ctx context.Context) {
	if d.options.Config == "" {
		d.awaitHangUps(ctx)
		return
	}
	w, err := fsnotify.NewWatcher()
	if err != nil {
		d.log.Warn("files are not watched: send SIGHUP to reload", "error", err)
		d.awaitHangUps(ctx)
		return
	}
	defer w.Close()
	d.follow(w)
	quiet := time.NewTimer(settle) // once at the start, for what changed meanwhile
	defer quiet.Stop()
	waiting := time.Now()
	for {
		select {
		case <-ctx.Done():
			return
		case <-d.hangUps:
			d.reload("SIGHUP")
			quiet.Reset(settle) // it may name other files
		case <-w.Events:
			if waiting.IsZero() {
				waiting = time.Now()
			}
			if time.Since(waiting) < patience {
				quiet.Reset(settle)
			}
		case err := <-w.Errors:
			d.log.Warn("watching the configuration", "error", err)
			quiet.Reset(settle) // events may have been lost
		case <-quiet.C:
			waiting = time.Time{}
			if now := d.follow(w); now != d.seen {
				d.reload("file changed")
				// Not what is there now: it may have changed since it was read, or
				// the new topology names other secrets. Look again.
				d.seen = now
				quiet.Reset(settle)
			}
		}
	}
}

// awaitHangUps reloads at SIGHUP alone, until ctx ends.
func (d *Daemon) awaitHangUps(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-d.hangUps:
			d.reload("SIGHUP")
		}
	}
}

// follow watches the folders of all files in force, and returns their fingerprint.
func (d *Daemon) follow(w *fsnotify.Watcher) [sha256.Size]byte {
	for _, file := range d.files() {
		paths := []string{file}
		if target, err := filepath.EvalSymlinks(file); err == nil && target != file {
			paths = append(paths, target)
		}
		for _, p := range paths {
			if err := w.Add(filepath.Dir(p)); err != nil {
				d.log.Warn("a folder is not watched: send SIGHUP to reload", "folder", filepath.Dir(p), "error", err)
			}
		}
	}
	return d.fingerprint()
}

// fingerprint stands for what is in the files in force.
func (d *Daemon) fingerprint() [sha256.Size]byte {
	h := sha256.New()
	for _, file := range d.files() {
		sum := fileSum(file)
		h.Write(sum[:])
	}
	return [sha256.Size]byte(h.Sum(nil))
}

// fileSum stands for a file's name and content, or why it cannot be read.
func fileSum(file string) [sha256.Size]byte {
	h := sha256.New()
	content, err := os.ReadFile(file)
	fmt.Fprintf(h, "%s %d %v ", file, len(content), err)
	h.Write(content)
	return [sha256.Size]byte(h.Sum(nil))
}

// files are the topology and the files that it names.
func (d *Daemon) files() []string {
	top := d.topology.Load()
	files := []string{
		d.options.Config, top.Access.TokensFile, top.Access.AdminTokensFile,
		top.Access.ClientCAFile, top.Access.CertFile, top.Access.KeyFile,
	}
	if r, ok := top.Region(d.options.Region); ok {
		files = append(files, r.Redis.PasswordFile)
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
