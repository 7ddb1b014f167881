package daemon

import (
	"runtime"

	"github.com/regiond/regiond/internal/base/instruments"
)

// instrument exports what this process is, whether traffic should come here, and whether the configuration in force is
// the one in the file.
func (d *Daemon) instrument() error {
	i := instruments.On(d.telemetry.Meter("regiond"))
	i.Gauge("regiond.build.info", "", "1, labelled with what this program was built from.", func(observe instruments.Observe) {
		observe(1, "version", d.options.Version, "commit", d.options.Commit, "go_version", runtime.Version())
	})
	i.Gauge("regiond.ready", "", "1 while /readyz reports that traffic should come here.", func(observe instruments.Observe) {
		ok, _ := d.ready()
		observe(instruments.Truth(ok))
	})
	i.Gauge("regiond.config.info", "", "1, labelled with the hash of the configuration in force.",
		func(observe instruments.Observe) { observe(1, "hash", d.hash()) })
	d.reloads = i.CounterBy("regiond.config.reloads", "{reload}",
		"Reloads of the topology, by result.", "result", "ok", "failed")
	d.reopened = i.Counter("regiond.region.reopened", "{time}", "Times that an operator has reopened this region after a loss of data, here.")
	return i.Err()
}
