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
	// lineBytes is about the bytes of a payload at most, and answerBytes those of a process's answers in rootEvery: a million
	// overrides travel in less than a minute, and no edit waits behind many.
	lineBytes   = 128 << 10
	answerBytes = 4 << 20
	// answerRest is how long after the last part of an answer that was of use a process asks, at least.
	answerRest = rootEvery / 4
	// fullEvery is how often a process asks at most that has no room for more: it may lack for long what others have.
	fullEvery = time.Minute
	// handleTimeout bounds all questions to Redis because of one payload, of which many overrides need some thirty.
	handleTimeout = 5 * readTimeout
	// againMost is how long an answer about a slice waits at most for which the same was published before.
	againMost = 8 * rootEvery
	// maxInbox bounds the payloads of others that wait for Run.
	maxInbox = 256
	// maxAgains bounds the answers that are remembered: two for each slice.
	maxAgains = 2 * sliceCount
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
		kept = o.Text()
	}
	return v.publish(ctx, o, kept)
}

// arrival is an override of another region.
type arrival struct {
	*quota.Override
	text string
	err  error // why it is not kept here
}

// handle carries out a payload.
func (f *follower) handle(ctx context.Context, r received) {
	ctx, cancel := context.WithTimeout(ctx, handleTimeout)
	defer cancel()
	var arrivals [sliceCount][]*arrival
	count := 0
	var theirs [sliceCount]uint64
	asks := false
	for line := range strings.Lines(string(r.payload)) {
		kind, rest, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
		switch kind {
		case "o":
			tenant, text, _ := strings.Cut(rest, " ")
			o, err := quota.ParseOverride(tenant, text)
			if err != nil {
				f.refused(r.from, err)
				continue
			}
			slice := sliceOf(tenant)
			arrivals[slice] = append(arrivals[slice], &arrival{Override: o, text: text})
			count++
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
				theirs[slice], asks = digest, true
			}
		}
	}
	for _, all := range arrivals {
		if len(all) > 0 && f.merge(ctx, r.from, all) && count > 1 {
			f.askedAt = f.o.Now().Add(answerRest - rootEvery) // an answer to any process is one to all
		}
		for _, a := range all {
			switch {
			case a.err == nil && count == 1: // of an edit
				f.peers.Send(fmt.Appendf(nil, "a %x\n", versionHash(a.Override)))
			case a.err != nil:
				f.refused(r.from, a.err)
			}
		}
	}
	if asks {
		f.answer(ctx, &theirs)
	}
}

var (
	errNewer   = errors.New("a newer version is in force here")
	errLoading = errors.New("this process has not read all overrides yet")
	errFull    = fmt.Errorf("there is no room for it: the overrides that this region has, with those deleted in the last %d days, take %d MiB of each process",
		quota.OverrideKept/(24*time.Hour), newBytes>>20)
	errAhead = fmt.Errorf("its version is more than %v ahead of this region's clock: compare the clocks of the regions' redis", maxAhead)
)

// refused takes note of an override of another region that is not kept here.
func (f *follower) refused(from quota.Process, err error) {
	switch {
	case errors.Is(err, errNewer), errors.Is(err, errLoading): // the next r heals it
		return
	case errors.Is(err, errFull):
		f.noRoom.Add(1)
	}
	f.faults.Warn(f.o.Logger, f.o.Now(), "merge", "an override of another region was not taken in; it comes again",
		"region", from.Region, "error", err)
}

// merge takes overrides of another region in, all of one slice, and sets err of each: nil once it is kept here. It reports whether
// any is new here.
func (f *follower) merge(ctx context.Context, from quota.Process, all []*arrival) (changed bool) {
	var left []*arrival
	for _, a := range all {
		switch nowUS := f.o.TimeUS(); {
		case a.Version.WallUS-nowUS > maxAhead.Microseconds():
			a.err = errAhead
		case !a.Forgotten(nowUS):
			left = append(left, a)
		}
	}
	for attempt := 0; len(left) > 0; attempt++ {
		err := ErrContended
		var kept []string
		if attempt < editAttempts {
			kept, err = f.keeper.read(ctx, tenants(left)...)
		}
		var changes []replacement
		var changing []*arrival
		for i, a := range left {
			if a.err = err; err == nil && f.takes(from, a, kept[i], &changed) {
				changes, changing = append(changes, replacement{a.Tenant, kept[i], a.text}), append(changing, a)
			}
		}
		swapped, err := f.keeper.swap(ctx, false, changes...)
		left = left[:0]
		for i, a := range changing {
			switch {
			case err != nil:
				a.err = fmt.Errorf("keep the override: %w", err)
			case !swapped[i]: // a sibling came between, or another of all
				left = append(left, a)
			case len(all) == 1: // siblings receive many as this process does
				a.err = f.keeper.announce(ctx, a.Tenant)
			}
		}
	}
	return changed
}

func tenants(all []*arrival) (names []string) {
	for _, a := range all {
		names = append(names, a.Tenant)
	}
	return names
}

// takes has this process know an override of another region, if there is none as new, and reports whether the keeper is to keep it,
// which has the text kept.
func (f *follower) takes(from quota.Process, a *arrival, kept string, changed *bool) bool {
	known, order := f.newest(a.Tenant, kept), -1
	if known != nil {
		order = known.Version.Compare(a.Version)
	}
	switch {
	case known == nil && !f.loaded.Load(): // how many there are is not known
		a.err = errLoading
		return false
	case order != 0 && f.table.full(known != nil) && (known == nil || !f.table.shrinks(known, a.Override)):
		a.err = errFull
		return false
	case f.table.fold(a.Override):
		*changed = true
	}
	switch {
	case order > 0:
		a.err = errNewer
		return false
	case order < 0 && known.InForce(f.o.TimeUS()) && known.Version.Counter >= a.Version.Counter:
		f.double.Warn(f.o.Logger, f.o.Now(), "", "two regions edited one override at the same time: the larger version holds",
			"tenant", a.Tenant, "version", a.Version.String(), "region", from.Region, "instead_of", known.Version.String(), "lost", known.Describe())
	}
	return !holds(kept, a.Override)
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
	digests := f.table.digests(f.o.TimeUS())
	f.peers.Send(fmt.Appendf(nil, "r %x\n", root(&digests)))
}

// ask asks another process, whose root is given, for what it has that we lack.
func (f *follower) ask(from quota.Process, theirs string) {
	now, digests, every := f.o.Now(), f.table.digests(f.o.TimeUS()), rootEvery
	if f.table.full(false) { // it may stay different
		every = fullEvery
	}
	if !f.loaded.Load() || now.Sub(f.askedAt) < every || theirs == strconv.FormatUint(root(&digests), 16) {
		return
	}
	f.askedAt = now
	var b bytes.Buffer
	for slice, digest := range digests {
		fmt.Fprintf(&b, "d %d %d %x\n", from.Boot, slice, digest)
	}
	f.peers.Send(b.Bytes())
}

// place is behind an override of a slice in the order of tenants; "" is before the first.
type place struct {
	slice int
	after string
}

// answered is an answer about a slice: mine and theirs are the digests it was for.
type answered struct {
	slice        int
	mine, theirs uint64
}

// again is when the same answer may be published again, and for how long it waits the next time.
type again struct {
	at   time.Time
	rest time.Duration
}

// due reports whether an answer may be published now. It was in vain if the same is asked for again: it was lost, or others cannot take
// it in, such as a version that is far ahead of their clock or of another release. So it comes again, but ever less often.
func (f *follower) due(a answered) bool {
	last, ok := f.rests[a]
	return !ok || !f.o.Now().Before(last.at)
}

// published takes note of an answer.
func (f *follower) published(a answered) {
	if len(f.rests) >= maxAgains || f.rests == nil {
		f.rests = map[answered]again{}
	}
	rest := max(rootEvery/2, min(2*f.rests[a].rest, againMost))
	f.rests[a] = again{f.o.Now().Add(rest), rest}
}

// answer publishes what slices hold whose digest is another one, as far as answerBytes allow, beginning where the last answer ended.
func (f *follower) answer(ctx context.Context, theirs *[sliceCount]uint64) {
	if now := f.o.Now(); now.Sub(f.budgetAt) >= rootEvery {
		f.budget, f.budgetAt = answerBytes, now
	}
	digests := f.table.digests(f.o.TimeUS())
	var b bytes.Buffer
	send := func() {
		if b.Len() > 0 {
			f.peers.Send(bytes.Clone(b.Bytes()))
			b.Reset()
		}
	}
	defer send()
	for range sliceCount {
		at := &f.answered
		a := answered{at.slice, digests[at.slice], theirs[at.slice]}
		if a.mine != a.theirs && (at.after != "" || f.due(a)) {
			texts, err := f.kept(ctx, at.slice) // with By and Reason
			if err != nil {
				return
			}
			for _, o := range f.table.of(at.slice) {
				if o.Tenant <= at.after {
					continue
				}
				if f.budget <= 0 {
					return
				}
				text := texts[o.Tenant]
				if !holds(text, o) {
					text = o.Text()
				}
				line := overrideLine(o.Tenant, text)
				at.after, f.budget = o.Tenant, f.budget-len(line)
				if b.WriteString(line); b.Len() > lineBytes {
					send()
				}
			}
			f.published(a)
		}
		*at = place{slice: (at.slice + 1) % sliceCount}
	}
}

var _ = [wire.MaxPayload - lineBytes - 4<<10]struct{}{} // a payload has one override more than lineBytes at most
