package overrides

import (
	"encoding/binary"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/cespare/xxhash/v2"

	"github.com/regiond/regiond/quota"
)

// slices of tenants, by hash: what a region keeps and reads at once, so that no command takes Redis long.
const sliceCount = 256

func sliceOf(tenant string) int { return int(xxhash.Sum64String(tenant) % sliceCount) }

// table has all overrides that this process knows, deleted ones too, without By and Reason. Each is one string under a hash of
// its tenant: a million have to fit into 120 MB. Safe for concurrent use.
type table struct {
	size   atomic.Int64
	bytes  atomic.Int64 // about what they take
	slices [sliceCount]tableSlice

	mu    sync.RWMutex
	words []word // of policies, limits and regions
	ids   map[string]uint64
	free  []uint64 // places in words that nothing uses: names may be invented
}

// word is one that so many overrides have so often.
type word struct {
	text string
	uses int
}

const (
	// maxBytes bounds what the overrides of a process take, about, whoever invents them. Those of more tenants have room in
	// newBytes, which is two million with short names; the rest is for what those become that are known.
	maxBytes = 256 << 20
	newBytes = maxBytes / 4 * 3
	// entryBytes are what one takes beside its packed form, and wordBytes a word beside itself, twice.
	entryBytes, wordBytes = 70, 64
)

// full reports whether there is no room for another override of a tenant, of which one is known or none. What the region's Redis
// holds is known all the same.
func (t *table) full(known bool) bool {
	if known {
		return t.bytes.Load() >= maxBytes
	}
	return t.bytes.Load() >= newBytes
}

// shrinks reports whether an override takes no more room than the one that it replaces, but for some bytes: a deletion, or other units.
// So a region without room is still ended and suspended in.
func (t *table) shrinks(from, to *quota.Override) bool {
	t.mu.RLock()
	defer t.mu.RUnlock()
	_, known := t.ids[to.Version.Region]
	_, policy := t.ids[to.Policy]
	known = known && (policy || to.Policy == "") // as a deletion has none
	for _, l := range to.Limits {
		_, limit := t.ids[l.Name]
		known = known && limit
	}
	return known && len(to.Limits) <= len(from.Limits)
}

type tableSlice struct {
	mu  sync.RWMutex
	all map[uint64]string // packed, by xxhash of the tenant
	// same has those of tenants whose hash another one has, by tenant: somebody may choose ids so.
	same map[string]string
	// digest is the exclusive or of the hashes of the versions that never end, and ends those of the others, by the day of their end.
	digest uint64
	ends   map[int64]uint64
}

const dayUS = 24 * 3600 * 1_000_000

// note adds a version to the digests, or takes it away again.
func (s *tableSlice) note(o *quota.Override) {
	ended, hash := o.EndedUS(), versionHash(o)
	if ended == 0 {
		s.digest ^= hash
		return
	}
	if s.ends == nil {
		s.ends = map[int64]uint64{}
	}
	if s.ends[ended/dayUS] ^= hash; s.ends[ended/dayUS] == 0 {
		delete(s.ends, ended/dayUS)
	}
}

// find returns where a tenant's is, and what.
func (s *tableSlice) find(tenant string) (packed string, ok bool) {
	if packed, ok = s.all[xxhash.Sum64String(tenant)]; ok && tenantOf(packed) == tenant {
		return packed, true
	}
	packed, ok = s.same[tenant]
	return packed, ok
}

// put adds one, or replaces that of its tenant.
func (s *tableSlice) put(packed string) {
	tenant := tenantOf(packed)
	hash := xxhash.Sum64String(tenant)
	if first, taken := s.all[hash]; !taken || tenantOf(first) == tenant {
		if s.all == nil {
			s.all = map[uint64]string{}
		}
		s.all[hash] = packed
		delete(s.same, tenant) // where the other one has gone since
		return
	}
	if s.same == nil {
		s.same = map[string]string{}
	}
	s.same[tenant] = packed
}

func (s *tableSlice) drop(tenant string) {
	if hash := xxhash.Sum64String(tenant); s.all[hash] != "" && tenantOf(s.all[hash]) == tenant {
		delete(s.all, hash)
		return
	}
	delete(s.same, tenant)
}

// tenantOf is the tenant of a packed override.
func tenantOf(packed string) string {
	length := int(packed[0]) + 1 // 1…quota.MaxID
	return packed[1 : 1+length]
}

// pack makes one string of an override, which uses its words until release: its tenant behind its length, then counter, wall clock,
// region, expiry, flags, policy, and the limits.
func (t *table) pack(o *quota.Override) string {
	b := append(append(make([]byte, 0, 96), byte(len(o.Tenant)-1)), o.Tenant...)
	b = binary.AppendUvarint(b, uint64(o.Version.Counter))
	b = binary.AppendUvarint(b, uint64(o.Version.WallUS))
	b = binary.AppendUvarint(b, t.id(o.Version.Region))
	b = binary.AppendUvarint(b, uint64(o.ExpiresUS))
	flags := byte(0)
	if o.Deleted {
		flags |= 1
	}
	if o.Enforcement != nil {
		flags |= 2 | byte(*o.Enforcement)<<2
	}
	b = binary.AppendUvarint(append(b, flags), t.id(o.Policy))
	for _, l := range o.Limits {
		b = binary.AppendUvarint(binary.AppendUvarint(b, t.id(l.Name)), uint64(l.Units))
	}
	return string(b)
}

// unpack reads a string of pack whose words are in use: the lock of its slice is held.
func (t *table) unpack(packed string) *quota.Override {
	o := &quota.Override{Tenant: tenantOf(packed)}
	rest := []byte(packed[1+len(o.Tenant):])
	next := func() uint64 {
		n, size := binary.Uvarint(rest)
		rest = rest[size:]
		return n
	}
	o.Version.Counter, o.Version.WallUS = int64(next()), int64(next())
	o.Version.Region, o.ExpiresUS = t.word(next()), int64(next())
	flags := rest[0]
	rest = rest[1:]
	o.Deleted = flags&1 != 0
	if flags&2 != 0 {
		e := quota.Enforcement(flags >> 2)
		o.Enforcement = &e
	}
	o.Policy = t.word(next())
	for len(rest) > 0 {
		o.Limits = append(o.Limits, quota.OverrideLimit{Name: t.word(next()), Units: int64(next())})
	}
	return o
}

// id is the number of a word, for one use of it.
func (t *table) id(text string) uint64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	id, ok := t.ids[text]
	if !ok {
		if t.ids == nil {
			t.ids = map[string]uint64{}
		}
		if n := len(t.free); n > 0 {
			id, t.free = t.free[n-1], t.free[:n-1]
		} else {
			id, t.words = uint64(len(t.words)), append(t.words, word{})
		}
		text = strings.Clone(text)
		t.words[id].text, t.ids[text] = text, id
		t.bytes.Add(wordBytes + 2*int64(len(text)))
	}
	t.words[id].uses++
	return id
}

// release ends the uses that pack has made of an override's words.
func (t *table) release(o *quota.Override) {
	t.mu.Lock()
	defer t.mu.Unlock()
	end := func(text string) {
		id := t.ids[text]
		if t.words[id].uses--; t.words[id].uses == 0 {
			t.words[id].text, t.free = "", append(t.free, id)
			delete(t.ids, text)
			t.bytes.Add(-wordBytes - 2*int64(len(text)))
		}
	}
	end(o.Version.Region)
	end(o.Policy)
	for _, l := range o.Limits {
		end(l.Name)
	}
}

func (t *table) word(id uint64) string {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return t.words[id].text
}

// get returns what is known of a tenant, nil for nothing.
func (t *table) get(tenant string) *quota.Override {
	if t.size.Load() == 0 {
		return nil
	}
	s := &t.slices[sliceOf(tenant)]
	s.mu.RLock()
	defer s.mu.RUnlock()
	packed, ok := s.find(tenant)
	if !ok {
		return nil
	}
	return t.unpack(packed)
}

// fold keeps an override if its version is larger than what is known, and reports whether it is.
func (t *table) fold(o *quota.Override) bool {
	s := &t.slices[sliceOf(o.Tenant)]
	s.mu.Lock()
	defer s.mu.Unlock()
	var before *quota.Override
	known, ok := s.find(o.Tenant)
	if ok {
		before = t.unpack(known)
		if o.Version.Compare(before.Version) <= 0 {
			return false
		}
		s.note(before)
	} else {
		t.size.Add(1)
		t.bytes.Add(entryBytes)
	}
	s.note(o)
	packed := t.pack(o)
	t.bytes.Add(int64(len(packed) - len(known)))
	s.put(packed)
	if ok { // after pack, so that words of both stay where they are
		t.release(before)
	}
	return true
}

// forget drops an override, but not a newer version of it.
func (t *table) forget(o *quota.Override) {
	s := &t.slices[sliceOf(o.Tenant)]
	s.mu.Lock()
	defer s.mu.Unlock()
	known, ok := s.find(o.Tenant)
	if !ok {
		return
	}
	if is := t.unpack(known); is.Version == o.Version {
		s.note(is)
		s.drop(o.Tenant)
		t.release(is)
		t.size.Add(-1)
		t.bytes.Add(-entryBytes - int64(len(known)))
	}
}

// of returns the overrides of one slice in the order of their tenants.
func (t *table) of(slice int) []*quota.Override {
	s := &t.slices[slice]
	s.mu.RLock()
	all := make([]*quota.Override, 0, len(s.all)+len(s.same))
	for _, packed := range s.all {
		all = append(all, t.unpack(packed))
	}
	for _, packed := range s.same {
		all = append(all, t.unpack(packed))
	}
	s.mu.RUnlock()
	slices.SortFunc(all, func(a, b *quota.Override) int { return strings.Compare(a.Tenant, b.Tenant) })
	return all
}

// digests are those of all slices at a TIME: of tables that hold the same they are the same, and also while one has forgotten what the
// other one is about to. So they are without those that are forgotten in the course of this day.
func (t *table) digests(nowUS int64) (all [sliceCount]uint64) {
	for i := range t.slices {
		s := &t.slices[i]
		s.mu.RLock()
		all[i] = s.digest
		for day, digest := range s.ends {
			if nowUS-day*dayUS < quota.OverrideKept.Microseconds() {
				all[i] ^= digest
			}
		}
		s.mu.RUnlock()
	}
	return all
}
