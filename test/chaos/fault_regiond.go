//go:build linux

package chaos

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"
	"time"

	"github.com/regiond/regiond/test/chaos/traffic"
)

// CrashRegion kills a region's regiond and NATS. It comes back over its Redis, and
// gossips from an address that no file names.
func (w *World) CrashRegion(name string) Fault {
	r := w.region(name)
	return Fault{
		Name: "region " + name + " crashed",
		Inject: func() error {
			r.regiond.kill()
			r.nats.kill()
			return nil
		},
		Heal: func() error {
			r.moved = true
			return errors.Join(r.nats.start(), w.launchRegiond(r))
		},
	}
}

// Restart stops a region's regiond with SIGTERM and starts it again, as a rollout does.
func (w *World) Restart(name string) Fault {
	r := w.region(name)
	return Fault{
		Name: "regiond of " + name + " stopped and started again",
		Inject: func() error {
			if err := r.regiond.cmd.Process.Signal(syscall.SIGTERM); err != nil {
				return err
			}
			<-r.regiond.exited
			return nil
		},
		Heal: r.regiond.start,
	}
}

// Reload gives the regions' files another limit in place of one, in one region after the
// other, with half a file in between. Healed, all have the old one again. tenant has that limit.
func (w *World) Reload(tenant string, from, to int, apart time.Duration) Fault {
	write := func(r *Region, text string) error { return os.WriteFile(w.file(r), []byte(text), 0o600) }
	good := w.topology()
	other := strings.Replace(good, fmt.Sprintf("units: %d,", from), fmt.Sprintf("units: %d,", to), 1)
	half, _, _ := strings.Cut(other, "units:")
	return Fault{
		Name: fmt.Sprintf("the limit of %d changed to %d, region by region, %v apart", from, to, apart),
		Inject: func() error {
			for _, r := range w.Regions {
				if err := write(r, half); err != nil {
					return err
				}
				time.Sleep(apart / 2)
				if err := write(r, other); err != nil {
					return err
				}
				w.History.Note("the file of " + r.Name + " is the other one")
				time.Sleep(apart / 2)
			}
			return nil
		},
		Heal: func() error {
			var errs []error
			for _, r := range w.Regions {
				_, err := w.Await(time.Second, r.Name+" applies its topology", func() error { // it may be too busy for once
					limit, err := r.limit(tenant)
					if err == nil && limit != int64(to) {
						err = fmt.Errorf("it applies %d units, its topology has %d", limit, to)
					}
					return err
				})
				errs = append(errs, err, write(r, good))
			}
			return errors.Join(errs...)
		},
	}
}

// limit is a tenant's limit as a region reports it. An answer by the fail mode is an error: it goes by the file where an override
// cannot be read.
func (r *Region) limit(tenant string) (int64, error) {
	var answer traffic.Answer
	err := r.ask(r.target.Regiond, "GET", "/v1/usage/"+tenant, "", &answer)
	if err == nil && answer.Mode == "local" {
		err = fmt.Errorf("%s answers for %s by its fail mode: %s", r.Name, tenant, answer.Reason)
	}
	return answer.Limit, err
}
