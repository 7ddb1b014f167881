package overrides

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/cespare/xxhash/v2"

	"github.com/regiond/regiond/internal/base/signal"
	"github.com/regiond/regiond/quota"
	"github.com/regiond/regiond/sync/wire"
)

// How overrides come to other regions. A payload is lines, each of one kind:
//
//	o TENANT TEXT          an override, as the author knows it
//	a HASH                 the author's region keeps the version with this hash
//	r ROOT                 a hash of all that the author knows
//	d BOOT SLICE DIGEST    of one slice, to the process that began at BOOT: it publishes what it has of those that differ
//
//	edit ── o ─▶ all regions ── a ─▶ the process of the edit, which answers once all have it or editWait has passed
//	each second ── r ─▶ all regions: one where it differs ── d, of all slices ─▶ the author ── o ─▶ all regions
//
// Of two versions the larger holds, so whatever is lost, repeated or late heals with the next r.

const (
	// rootEvery is how often a process publishes r, and asks at most.
	rootEvery = time.Second
	// editWait is how long an edit waits for other regions that are received.
	editWait = time.Second
	// slicesAtOnce bounds the slices of one answer, and lineBytes about the bytes of a payload.
	slicesAtOnce = 8
	lineBytes    = 128 << 10
	// maxInbox bounds the payloads of others that wait for Run.
	maxInbox = 256
	// maxAhead is how far ahead of this region's clock the time of a version may be. Whatever a peer claims, no version is the
	// largest for ever.
	maxAhead = 24 * time.Hour
)

// Peers connect an Overlay with other regions.
type Peers struct {
	// Self is this process.
	Self quota.Process
	// Send publishes a payload for all regions, as sync.Mesh.SendOverrides.
	Send func(payload []byte) bool
	// Regions lists those of the topology in force, Live the other processes that are received.
	Regions func() []string
	Live    func() []quota.Process
}

// Connect has overrides travel between regions. It comes before Run.
func (v *Overlay) Connect(p Peers) { v.peers = &p }

// received is a payload of another process.
type received struct {
	from    quota.Process
	payload []byte
}

// waits are the edits that wait for other regions.
type waits struct {
	mu  sync.Mutex
	all map[*editWaits]struct{} // equal edits wait for the same version
}

// editWaits is one of them; waits.mu guards it.
type editWaits struct {
	hash    uint64 // of the version
	regions map[string]bool
	changed chan struct{}
}

// Receive takes a payload of another process. It returns at once: Run reads it.
func (v *Overlay) Receive(from quota.Process, payload []byte) error {
	if v.peers == nil || from.Region == v.o.Region { // siblings share the keeper
		return nil
	}
	if len(payload) < 2 || payload[1] != ' ' || !bytes.ContainsAny(payload[:1], "oard") {
		return errors.New("a payload of overrides that is none")
	}
	select {
	case v.inbox <- received{from, payload}:
	default: // the next r heals it
	}
	return nil
}

// versionHash names a version of a tenant's override.
func versionHash(o *quota.Override) uint64 {
	return xxhash.Sum64String(o.Tenant + " " + o.Version.String())
}

// root is a hash of all digests.
func root(digests *[sliceCount]uint64) uint64 {
	h := xxhash.New()
	for _, d := range digests {
		_, _ = h.WriteString(strconv.FormatUint(d, 36) + " ") // never fails
	}
	return h.Sum64()
}

func overrideLine(tenant, text string) string { return "o " + tenant + " " + text + "\n" }

// publish has an edit travel, and returns what became of it in each region.
func (v *Overlay) publish(ctx context.Context, o *quota.Override, text string) []quota.RegionEdit {
	if v.peers == nil {
		return []quota.RegionEdit{{Region: v.o.Region, Result: quota.EditApplied}}
	}
	w := &editWaits{hash: versionHash(o), regions: map[string]bool{v.o.Region: true}, changed: make(chan struct{}, 1)}
	v.waits.mu.Lock()
	v.waits.all[w] = struct{}{}
	v.waits.mu.Unlock()
	defer func() {
		v.waits.mu.Lock()
		defer v.waits.mu.Unlock()
		delete(v.waits.all, w)
	}()
	v.peers.Send([]byte(overrideLine(o.Tenant, text)))
	end := time.NewTimer(editWait)
	defer end.Stop()
	for again := time.After(editWait / 3); v.unreached(w); {
		select {
		case <-ctx.Done():
		case <-end.C:
		case <-again:
			v.peers.Send([]byte(overrideLine(o.Tenant, text))) // it may be lost
			again = nil
			continue
		case <-w.changed:
			continue
		}
		break
	}
	return v.results(w)
}

// unreached reports whether a region that is received has not acknowledged.
func (v *Overlay) unreached(w *editWaits) bool {
	v.waits.mu.Lock()
	defer v.waits.mu.Unlock()
	for _, p := range v.peers.Live() {
		if !w.regions[p.Region] {
			return true
		}
	}
	return false
}

func (v *Overlay) results(w *editWaits) (all []quota.RegionEdit) {
	v.waits.mu.Lock()
	defer v.waits.mu.Unlock()
	for _, name := range v.peers.Regions() {
		r := quota.RegionEdit{Region: name, Result: quota.EditNotReached}
		if w.regions[name] {
			r.Result = quota.EditApplied
		}
		all = append(all, r)
	}
	return all
}

// everywhere says of each region that a version which is in force here already is.
func (v *Overlay) everywhere(ctx context.Context, o *quota.Override, kept string) []quota.RegionEdit {
	if o == nil {
		return []quota.RegionEdit{{Region: v.o.Region, Result: quota.EditApplied}}
	}
	if !holds(kept, o) { // redis has lost it, and gets it again with its slice
		kept = string(o.AppendText(nil))
	}
	return v.publish(ctx, o, kept)
}

// handle carries out a payload.
func (f *follower) handle(ctx context.Context, r received) {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	var acks strings.Builder
	var asked [sliceCount]uint64
	asks := false
	for line := range strings.Lines(string(r.payload)) {
		kind, rest, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
		switch kind {
		case "o":
			tenant, text, _ := strings.Cut(rest, " ")
			o, err := quota.ParseOverride(tenant, text)
			if err == nil {
				err = f.merge(ctx, r.from, o, text)
			}
			switch {
			case err == nil:
				fmt.Fprintf(&acks, "a %x\n", versionHash(o))
			case !errors.Is(err, errNewer):
				f.faults.Warn(f.o.Logger, f.o.Now(), "merge", "an override of another region was not taken in; it comes again",
					"region", r.from.Region, "error", err)
			}
		case "a":
			f.acknowledged(r.from.Region, rest)
		case "r":
			f.ask(r.from, rest)
		case "d":
			var boot int64
			var slice int
			var digest uint64
			_, err := fmt.Sscanf(rest, "%d %d %x", &boot, &slice, &digest)
			if err == nil && boot == f.peers.Self.Boot && slice >= 0 && slice < sliceCount {
				asked[slice], asks = digest, true
			}
		}
	}
	if acks.Len() > 0 {
		f.peers.Send([]byte(acks.String()))
	}
	if asks {
		f.answer(ctx, &asked)
	}
}

var (
	errNewer = errors.New("a newer version is in force here")
	errAhead = fmt.Errorf("its version is more than %v ahead of this region's clock: compare the clocks of the regions' redis", maxAhead)
)

// merge takes an override of another region in, and returns nil once it is kept here.
func (f *follower) merge(ctx context.Context, from quota.Process, o *quota.Override, text string) error {
	switch nowUS := f.o.TimeUS(); {
	case o.Version.WallUS-nowUS > maxAhead.Microseconds():
		return errAhead
	case o.Forgotten(nowUS):
		return nil
	}
	for range editAttempts {
		known, kept, err := f.current(ctx, o.Tenant)
		if err != nil {
			return err
		}
		order := -1
		if known != nil {
			order = known.Version.Compare(o.Version)
		}
		f.table.fold(o)
		switch {
		case order > 0:
			return errNewer
		case order == 0 && holds(kept, o):
			return nil
		case order < 0 && known.InForce(f.o.TimeUS()) && known.Version.Counter >= o.Version.Counter:
			f.o.Logger.Warn("two regions edited one override at the same time: the larger version holds", "tenant", o.Tenant,
				"version", o.Version.String(), "region", from.Region, "instead_of", known.Version.String(), "lost", known.Describe())
		}
		swapped, err := f.keeper.swap(ctx, o.Tenant, kept, text, false)
		if err != nil {
			return fmt.Errorf("keep the override: %w", err)
		}
		if !swapped {
			continue
		}
		if f.shared != nil {
			return f.shared.announce(ctx, o.Tenant)
		}
		return nil
	}
	return ErrContended
}

func (f *follower) acknowledged(region, text string) {
	hash, err := strconv.ParseUint(text, 16, 64)
	f.waits.mu.Lock()
	defer f.waits.mu.Unlock()
	for w := range f.waits.all {
		if err == nil && w.hash == hash {
			w.regions[region] = true
			signal.Send(w.changed)
		}
	}
}

// advertise publishes r when it is due.
func (f *follower) advertise() {
	now := f.o.Now()
	if f.peers == nil || !f.loaded.Load() || now.Sub(f.advertised) < rootEvery {
		return
	}
	f.advertised = now
	digests := f.table.digests()
	f.peers.Send(fmt.Appendf(nil, "r %x\n", root(&digests)))
}

// ask asks another process, whose root is given, for what it has that we lack.
func (f *follower) ask(from quota.Process, theirs string) {
	now, digests := f.o.Now(), f.table.digests()
	if !f.loaded.Load() || now.Sub(f.askedAt) < rootEvery || theirs == strconv.FormatUint(root(&digests), 16) {
		return
	}
	f.askedAt = now
	var b bytes.Buffer
	for slice, digest := range digests {
		fmt.Fprintf(&b, "d %d %d %x\n", from.Boot, slice, digest)
	}
	f.peers.Send(b.Bytes())
}

// answer publishes what slices hold whose digest is another one.
func (f *follower) answer(ctx context.Context, theirs *[sliceCount]uint64) {
	digests, left := f.table.digests(), slicesAtOnce
	var b bytes.Buffer
	send := func() {
		if b.Len() > 0 {
			f.peers.Send(bytes.Clone(b.Bytes()))
			b.Reset()
		}
	}
	for i := 0; i < sliceCount && left > 0; i++ {
		slice := (f.slice + i) % sliceCount // another order each time, so that one that stays different does not stop the others
		if digests[slice] == theirs[slice] {
			continue
		}
		left--
		texts := map[string]string{} // with By and Reason
		if f.shared != nil {
			if err := f.shared.scan(ctx, slice, func(tenant, text string) { texts[tenant] = text }); err != nil {
				return
			}
		}
		for _, o := range f.table.of(slice) {
			text := texts[o.Tenant]
			if f.shared == nil {
				text, _ = f.keeper.read(ctx, o.Tenant) // that of memory never fails
			}
			if !holds(text, o) {
				text = string(o.AppendText(nil))
			}
			if b.WriteString(overrideLine(o.Tenant, text)); b.Len() > lineBytes {
				send()
			}
		}
	}
	send()
}

var _ = [wire.MaxPayload - lineBytes - 4<<10]struct{}{} // a payload has one override more than lineBytes at most
