package gossip

import (
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"
)

// drift watches whether all who are alive have the same configuration.
type drift struct {
	mu      sync.Mutex
	since   time.Time // when they were first seen to differ; zero while they agree
	hashes  map[string][]string
	alarmed bool
}

// observe takes in who is there, sorted by name, and logs when the alarm begins
// and when it ends.
func (d *drift) observe(now time.Time, members []Member, log *slog.Logger) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.hashes = byHash(members)
	if len(d.hashes) < 2 {
		if d.alarmed {
			log.Info("configurations agree again", slog.Duration("after", now.Sub(d.since)))
		}
		d.since, d.alarmed = time.Time{}, false
		return
	}
	if d.since.IsZero() {
		d.since = now
	}
	if !d.alarmed && now.Sub(d.since) > DriftAlarm {
		d.alarmed = true
		log.Warn("processes differ in their configuration: give all of them the same file",
			slog.Duration("for", now.Sub(d.since)), slog.String("hashes", describe(d.hashes)))
	}
}

// current returns what observe saw last.
func (d *drift) current() (since time.Time, hashes map[string][]string, differ bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.since.IsZero() {
		return time.Time{}, nil, false
	}
	return d.since, maps.Clone(d.hashes), true // the lists are never changed
}

// seconds is how long configurations have differed, 0 while they agree.
func (d *drift) seconds(now time.Time) float64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.since.IsZero() {
		return 0
	}
	return now.Sub(d.since).Seconds()
}

// byHash groups the names of those who are alive and say what they run under.
func byHash(members []Member) map[string][]string {
	hashes := map[string][]string{}
	for _, m := range members {
		if m.State == Alive && m.ConfigHash != "" {
			hashes[m.ConfigHash] = append(hashes[m.ConfigHash], m.Name())
		}
	}
	return hashes
}

func describe(hashes map[string][]string) string {
	var parts []string
	for _, h := range slices.Sorted(maps.Keys(hashes)) {
		parts = append(parts, h+": "+strings.Join(hashes[h], " "))
	}
	return strings.Join(parts, ", ")
}
