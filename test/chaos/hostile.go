//go:build linux

package chaos

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/regiond/regiond/test/chaos/judge"
	"github.com/regiond/regiond/test/chaos/traffic"
)

// Achieved is what a hostile peer achieved: docs/failure.md says what it may.
type Achieved struct {
	MemoryMiB int64            `json:"memory_mib"` // the most that any regiond took beyond what it had
	Members   int              `json:"members"`    // the fewest live members that any region saw meanwhile
	Invented  int              `json:"invented"`   // the most that a region saw beside those that there are
	Refused   map[string]int64 `json:"refused"`    // messages and connections, by reason
	Blind     int              `json:"blind"`      // answers that were not global
	Denied    int              `json:"denied"`     // checks of tenants that no limit binds
	Beside    string           `json:"beside"`     // what else, in words
}

// What no hostile peer may pass.
const (
	mostMemoryMiB = 64
	membersEvery  = 250 * time.Millisecond
)

// hostile is a peer at work in a world.
type hostile struct {
	w        *World
	achieved *Achieved
	resting  map[string]int64
	refused  map[string]int64
}

// hostile has somebody attack from Inject until Heal, which measures what that achieved. after
// may add to it, and objects.
func (w *World) hostile(what string, attack func(ctx context.Context) error, after func(*Achieved) error) Fault {
	h := &hostile{w: w, achieved: &Achieved{}}
	f := background(what, func(ctx context.Context) error {
		var watching sync.WaitGroup
		var seen error
		watching.Go(func() { seen = h.watch(ctx) })
		err := attack(ctx)
		<-ctx.Done()
		watching.Wait()
		return errors.Join(err, seen)
	})
	f.Achieved = h.achieved
	inject, heal := f.Inject, f.Heal
	f.Inject = func() error { return errors.Join(h.begin(), inject()) }
	f.Heal = func() error { return errors.Join(heal(), h.end(), after(h.achieved)) }
	return f
}

// begin notes what the processes hold, and has the kernel forget their largest memory.
func (h *hostile) begin() error {
	h.resting = map[string]int64{}
	for _, r := range h.w.Regions {
		now, _, err := r.memory()
		if err == nil {
			err = os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", r.regiond.cmd.Process.Pid), []byte("5"), 0)
		}
		if err != nil {
			return fmt.Errorf("memory of %s: %w", r.Name, err)
		}
		h.resting[r.Name] = now
	}
	var err error
	h.refused, err = h.allRefused()
	return err
}

// end is what it came to.
func (h *hostile) end() error {
	var errs []error
	for _, r := range h.w.Regions {
		_, most, err := r.memory()
		more := (most - h.resting[r.Name]) >> 20
		if h.achieved.MemoryMiB = max(h.achieved.MemoryMiB, more); err == nil && more > mostMemoryMiB {
			err = fmt.Errorf("hostile: %s took %d MiB more, %d are allowed", r.Name, more, mostMemoryMiB)
		}
		errs = append(errs, err)
	}
	all, err := h.allRefused()
	h.achieved.Refused = map[string]int64{}
	for reason, n := range all {
		if n -= h.refused[reason]; n > 0 {
			h.achieved.Refused[reason] = n
		}
	}
	return errors.Join(append(errs, err)...)
}

// watch holds the regions to seeing each other by gossip.
func (h *hostile) watch(ctx context.Context) error {
	all := h.w.Regions
	h.achieved.Members = len(all)
	for ctx.Err() == nil {
		for _, r := range all {
			alive, err := r.metric(`regiond_gossip_members\{.*state="alive".*\}`)
			if err != nil {
				return err
			}
			h.achieved.Members = min(h.achieved.Members, int(alive))
			h.achieved.Invented = max(h.achieved.Invented, int(alive)-len(all))
		}
		pause(ctx, membersEvery)
	}
	if h.achieved.Members < len(all) {
		return fmt.Errorf("hostile: a region saw %d live members, there are %d", h.achieved.Members, len(all))
	}
	return nil
}

// allRefused is what the regions under attack have refused, by protocol and reason.
func (h *hostile) allRefused() (map[string]int64, error) {
	all := map[string]int64{}
	for _, r := range h.w.Regions {
		page, err := r.metrics()
		if err != nil {
			return nil, err
		}
		for _, m := range refusedLine.FindAllStringSubmatch(page, -1) {
			n, err := strconv.ParseFloat(m[3], 64)
			if err != nil {
				return nil, fmt.Errorf("%s: %q", r.Name, m[0])
			}
			all[strings.Replace(m[1], "sync", "bus", 1)+" "+m[2]] += int64(n)
		}
	}
	return all, nil
}

var refusedLine = regexp.MustCompile(`(?m)^regiond_(sync|gossip)_refused_total\{.*reason="(\w+)".*\} (\S+)$`)

// metrics is a region's page of metrics.
func (r *Region) metrics() (string, error) {
	status, body, err := r.admin.Do("GET", "/metrics", "")
	if err == nil && status != 200 {
		err = fmt.Errorf("status %d", status)
	}
	if err != nil {
		return "", fmt.Errorf("%s: metrics: %w", r.Name, err)
	}
	return string(body), nil
}

// metric adds up the series of a region whose names match.
func (r *Region) metric(name string) (sum float64, err error) {
	page, err := r.metrics()
	if err != nil {
		return 0, err
	}
	for _, m := range regexp.MustCompile(`(?m)^`+name+` (\S+)$`).FindAllStringSubmatch(page, -1) {
		n, err := strconv.ParseFloat(m[1], 64)
		if err != nil {
			return 0, fmt.Errorf("%s: %q", r.Name, m[0])
		}
		sum += n
	}
	return sum, nil
}

// memory is what a region's regiond has in memory, and the most since begin, in bytes.
func (r *Region) memory() (now, most int64, err error) {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", r.regiond.cmd.Process.Pid))
	if err != nil {
		return 0, 0, err
	}
	of := func(field string) (bytes int64) {
		_, rest, _ := strings.Cut(string(status), field+":")
		kib, parsed := strconv.ParseInt(strings.Fields(rest + " ?")[0], 10, 64)
		err = errors.Join(err, parsed)
		return kib << 10
	}
	return of("VmRSS"), of("VmHWM"), err
}

// answers counts those that were not global, and the denials of tenants that stay below their limits,
// whatever others do.
func (a *Achieved) answers(records []traffic.Record, during judge.Span) (objects []string) {
	for i := range records {
		r := &records[i]
		if r.Bare || r.Err != "" || r.Return < during.From || r.Call > during.To {
			continue
		}
		if r.Answer.Mode != "global" {
			a.Blind++
		}
		below := r.Class == traffic.Ledger || r.Class == traffic.Quiet
		if below && !r.Answer.Allowed && r.Answer.Basis != "shed" {
			a.Denied++
		}
	}
	if a.Denied > 0 {
		objects = append(objects, fmt.Sprintf("hostile: %d checks were denied of tenants that are below their limits", a.Denied))
	}
	return objects
}

// String is a row of a table: what was achieved.
func (a *Achieved) String() string {
	var refused []string
	for _, reason := range slices.Sorted(maps.Keys(a.Refused)) {
		refused = append(refused, fmt.Sprintf("%s %d", reason, a.Refused[reason]))
	}
	return fmt.Sprintf("%d | %d | %s | %d | %d | %s", a.MemoryMiB, a.Members, strings.Join(refused, ", "), a.Blind, a.Denied, a.Beside)
}
