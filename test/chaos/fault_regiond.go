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
	"time"

	"github.com/regiond/regiond/test/chaos/traffic"
)

// FreezeRegiond stops a region's regiond alone: what its NATS has for it piles up.
func (w *World) FreezeRegiond(name string) Fault {
	r := w.region(name)
	return Fault{Name: "regiond of " + name + " frozen", Inject: r.regiond.freeze, Heal: r.regiond.thaw}
}

// KillRegiond kills a region's regiond at one moment after the other and starts it again
// at once.
func (w *World) KillRegiond(name string, every time.Duration) Fault {
	r := w.region(name)
	return repeat(fmt.Sprintf("regiond of %s killed every %v", name, every), every, func() error {
		r.regiond.kill()
		return r.regiond.start()
	}, nothing)
}

// Elsewhere are the addresses of a second regiond in a region's namespace.
const (
	secondHTTP  = "127.0.0.1:8090"
	secondAdmin = "127.0.0.1:9091"
)

// Impersonate starts a second regiond of a region under the name of the first, as a
// copied unit file does. It must report that it is not ready.
func (w *World) Impersonate(name string) Fault {
	r := w.region(name)
	var second *process
	return Fault{
		Name: "a second process of " + name + " under the name of the first",
		Inject: func() (err error) {
			second, err = launch(r.ns, w.dir, "second", nil, w.options.Binaries.Regiond, "serve",
				"--config", w.file(r), "--region", name, "--instance", "one", "--log-format", "json",
				"--http", secondHTTP, "--admin", secondAdmin, "--gossip", netip.AddrPortFrom(r.other, gossipPort).String())
			if err == nil {
				err = w.listens(r, secondAdmin)
			}
			return err
		},
		Heal: func() error {
			if second == nil {
				return nil
			}
			admin := traffic.NewClient(secondAdmin, r.ns.Dial)
			status, body, err := admin.Do("GET", "/readyz", "")
			admin.HangUp()
			if err == nil && (status == 200 || !strings.Contains(string(body), "another process")) {
				err = fmt.Errorf("the second process of %s answers %d: %s", name, status, body)
			}
			second.kill()
			return err
		},
	}
}

// Stray starts a regiond of another deployment, with its own key, whose topology names our
// regions as its peers and our NATS as its own.
func (w *World) Stray(name string) Fault {
	r := w.region(name)
	var stray *process
	return Fault{
		Name: "a process of another deployment calls at " + name,
		Inject: func() error {
			key := filepath.Join(w.dir, "stray-key")
			at := netip.AddrPortFrom(r.other, gossipPort).String()
			b := &strings.Builder{}
			fmt.Fprintf(b, "cluster: staging\nregions:\n  - name: staging\n    http: %s\n    admin: %s\n", secondHTTP, secondAdmin)
			fmt.Fprintf(b, "    gossip: {bind: %q, advertise: %q, key_file: %q}\n    redis: {embedded: true}\n    nats: {urls: [%q]}\n", at, at, key, "nats://"+natsAddr)
			for _, r := range w.Regions {
				fmt.Fprintf(b, "  - name: %s\n    http: %s\n    gossip: {bind: %q, advertise: %q, key_file: %q}\n", r.Name, httpAddr, r.gossip(), r.gossip(), key)
				fmt.Fprintf(b, "    redis: {embedded: true}\n    nats: {urls: [%q]}\n", "nats://"+natsAddr)
			}
			b.WriteString("policies:\n  - name: one\n    limits: [{name: limit, units: 10, per: 4s, scope: global}]\ntenants: {default: {policy: one}}\n")
			file := filepath.Join(w.dir, "stray.yaml")
			err := errors.Join(newKey(key), os.WriteFile(file, []byte(b.String()), 0o600))
			if err != nil {
				return err
			}
			stray, err = launch(r.ns, w.dir, "stray", nil, w.options.Binaries.Regiond, "serve",
				"--config", file, "--region", "staging", "--instance", "one", "--log-format", "json")
			if err == nil {
				err = w.listens(r, secondAdmin)
			}
			return err
		},
		Heal: func() error {
			if stray == nil {
				return nil
			}
			var err error
			select {
			case <-stray.exited:
				err = errors.New("the process of another deployment has ended: " + stray.tail(1500))
			default:
			}
			stray.kill()
			return err
		},
	}
}

// Reload gives the regions' files another hot limit, one region after the other, with
// half a file in between. Healed, all have the old one again.
func (w *World) Reload(units int, apart time.Duration) Fault {
	write := func(r *Region, text string) error { return os.WriteFile(w.file(r), []byte(text), 0o600) }
	good := w.topology()
	other := strings.Replace(good, fmt.Sprintf("units: %d, per: %v", HotUnits, HotWindow), fmt.Sprintf("units: %d, per: %v", units, HotWindow), 1)
	half, _, _ := strings.Cut(other, "units:")
	return Fault{
		Name: fmt.Sprintf("the hot limit lowered to %d, region by region, %v apart", units, apart),
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
				limit, err := r.limit(traffic.Hot + "-00")
				if err == nil && limit != int64(units) {
					err = fmt.Errorf("%s still applies %d units, its topology has %d", r.Name, limit, units)
				}
				errs = append(errs, err, write(r, good))
			}
			return errors.Join(errs...)
		},
	}
}

// limit is a tenant's limit as a region reports it.
func (r *Region) limit(tenant string) (int64, error) {
	status, body, err := r.door.Regiond.Do("GET", "/v1/usage/"+tenant, "")
	var answer traffic.Answer
	if err == nil {
		err = json.Unmarshal(body, &answer)
	}
	if err != nil || status != 200 {
		return 0, fmt.Errorf("%s: limit of %s: status %d, %w", r.Name, tenant, status, err)
	}
	return answer.Limit, nil
}
