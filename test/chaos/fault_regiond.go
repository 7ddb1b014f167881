//go:build linux

package chaos

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/regiond/regiond/test/chaos/traffic"
)

// KillRegiond kills a region's regiond at one moment after the other and starts it again
// at once.
func (w *World) KillRegiond(name string, every time.Duration) Fault {
	r := w.region(name)
	return repeat(fmt.Sprintf("regiond of %s killed every %v", name, every), every, func() error {
		r.regiond.kill()
		return r.regiond.start()
	}, nothing)
}

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

// DenyFiles leaves a region's regiond no file to open: open connections continue, new ones
// are not accepted.
func (w *World) DenyFiles(name string) Fault {
	r := w.region(name)
	var before unix.Rlimit
	limit := func(files uint64) error {
		return unix.Prlimit(r.regiond.cmd.Process.Pid, unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: files, Max: before.Max}, nil)
	}
	return Fault{
		Name: "regiond of " + name + " without free file descriptors",
		Inject: func() error {
			if err := unix.Prlimit(r.regiond.cmd.Process.Pid, unix.RLIMIT_NOFILE, nil, &before); err != nil {
				return err
			}
			return limit(1)
		},
		Heal: func() error { return limit(before.Cur) },
	}
}

// Addresses of a second regiond in a region's namespace.
const (
	secondHTTP  = "127.0.0.1:8090"
	secondAdmin = "127.0.0.1:9091"
)

// second runs another process in a region's namespace, and checks it before it is killed.
func (w *World) second(what string, r *Region, start func() (*process, error), check func(*process) error) Fault {
	var second *process
	return Fault{
		Name: what + " at " + r.Name,
		Inject: func() (err error) {
			if second, err = start(); err == nil {
				err = w.listens(r, secondAdmin)
			}
			return err
		},
		Heal: func() error {
			if second == nil {
				return nil
			}
			defer second.kill()
			return check(second)
		},
	}
}

// Impersonate starts a second regiond of a region under the name of the first, as a
// copied unit file does. It must report that it is not ready.
func (w *World) Impersonate(name string) Fault {
	r := w.region(name)
	return w.second("a duplicate instance", r, func() (*process, error) {
		return launch(r.ns, w.dir, "second", nil, w.options.Binaries.Regiond, "serve",
			"--config", w.file(r), "--region", name, "--instance", "one", "--log-format", "json",
			"--http", secondHTTP, "--admin", secondAdmin, "--gossip", netip.AddrPortFrom(r.other, gossipPort).String())
	}, func(*process) error {
		admin := traffic.NewClient(secondAdmin, r.ns.Dial)
		defer admin.HangUp()
		status, body, err := admin.Do("GET", "/readyz", "")
		if err == nil && (status == 200 || !strings.Contains(string(body), "another process")) {
			err = fmt.Errorf("the second process of %s answers %d: %s", name, status, body)
		}
		return err
	})
}

// Stray starts a regiond of another deployment, with its own key, whose topology names our
// regions as its peers and our NATS as its own.
func (w *World) Stray(name string) Fault {
	r := w.region(name)
	return w.second("a process of another deployment", r, func() (*process, error) {
		key, file := w.keyFile("stray"), filepath.Join(w.dir, "stray.yaml")
		b := &strings.Builder{}
		b.WriteString("cluster: staging\nregions:\n")
		region := func(name, http, gossip string) {
			fmt.Fprintf(b, "  - name: %s\n    http: %s\n    gossip: {bind: %q, advertise: %q, key_file: %q}\n", name, http, gossip, gossip, key)
			fmt.Fprintf(b, "    redis: {embedded: true}\n    nats: {urls: [%q], username: %s, password_file: %q}\n", "nats://"+natsAddr, r.Name, w.natsPasswordFile())
		}
		region("staging", secondHTTP, netip.AddrPortFrom(r.other, gossipPort).String())
		fmt.Fprintf(b, "    admin: %s\n", secondAdmin)
		for _, r := range w.Regions {
			region(r.Name, httpAddr, r.gossip())
		}
		b.WriteString("policies:\n  - name: one\n    limits: [{name: limit, units: 10, per: 4s, scope: global}]\ntenants: {default: {policy: one}}\n")
		if err := errors.Join(w.writeKeys("stray", newKey()), os.WriteFile(file, []byte(b.String()), 0o600)); err != nil {
			return nil, err
		}
		return launch(r.ns, w.dir, "stray", nil, w.options.Binaries.Regiond, "serve",
			"--config", file, "--region", "staging", "--instance", "one", "--log-format", "json")
	}, func(stray *process) error {
		select {
		case <-stray.exited:
			return errors.New("the process of another deployment has ended: " + stray.tail(1500))
		default:
			return nil
		}
	})
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

// limit is a tenant's limit as a region reports it.
func (r *Region) limit(tenant string) (int64, error) {
	status, body, err := r.target.Regiond.Do("GET", "/v1/usage/"+tenant, "")
	var answer traffic.Answer
	if err == nil {
		err = json.Unmarshal(body, &answer)
	}
	if err == nil && status != 200 {
		err = fmt.Errorf("status %d", status)
	}
	if err != nil {
		return 0, fmt.Errorf("%s: limit of %s: %w", r.Name, tenant, err)
	}
	return answer.Limit, nil
}
