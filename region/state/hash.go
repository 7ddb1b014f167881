package state

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/regiond/regiond/clock"
	"github.com/regiond/regiond/quota"
	"github.com/regiond/regiond/region/members"
)

// kept is how long an entry is kept that its process does not renew: KEPT of region.lua.
const kept = 10 * time.Minute

// hash is what this process knows of one of the region's hashes: that of Key, or in a cluster one on another primary,
// which has no topology and no epoch.
//
// A process's own entry shows what became of the data beside it. If it is older than the last turn that was answered, or
// gone, the server has lost writes that it had confirmed: it was flushed, has started without them, or is a replica that
// was behind.
type hash struct {
	key   string
	clock *clock.Clock // of the server that has it
	turn  int64        // of ours that was answered last; 0: none was
	us    int64        // TIME then
	most  int64        // the largest TIME of all turns
	asks  bool         // it is another server, and processes are asked whether it has all that they know
	// watched is the server's clock as the last process saw it that watched it: TIME, and by how much that was ahead of the
	// process's host's clock.
	watched string
}

// reply is what region.lua found.
type reply struct {
	us                   int64 // TIME
	topology, epoch, own string
	began                bool          // this turn began the epoch
	asked                string        // what of another server, as region.lua has it
	entries              []string      // of other processes: field and value of each
	step                 time.Duration // by which the server's clock was moved since the turn before
	lost                 bool          // the server has lost data since then
	took                 bool          // it is another one since then
}

// exchange takes one turn on a hash. The lock is held, or this is the only one that knows h.
func (s *State) exchange(ctx context.Context, h *hash, turn int64, value string, args ...any) (*reply, error) {
	sent := h.clock.Now()
	raw, err := s.o.Eval(ctx, script, h.key, slices.Concat([]any{s.field(), fmt.Sprintf("%d %s", turn, value)}, args, []any{h.turn, s.watching(h), h.most})...)
	if err != nil {
		return nil, err
	}
	words, ok := texts(raw)
	if !ok || len(words) < 7 || len(words)%2 == 0 {
		return nil, fmt.Errorf("unexpected reply of the region script: %.80v", raw)
	}
	r := &reply{topology: words[1], epoch: words[2], own: words[3], began: words[4] != "", asked: words[5], entries: words[7:]}
	if r.us, err = strconv.ParseInt(words[0], 10, 64); err != nil {
		return nil, fmt.Errorf("unexpected TIME of the region script: %w", err)
	}
	if r.step, err = h.clock.Observe(sent, r.us); err != nil {
		return nil, err
	}
	r.took = r.asked == "took" || r.asked == "ask" && !h.asks
	if h.asks = r.asked == "ask"; r.took {
		s.o.Logger.Warn("another redis server has taken over, or it was started anew", "key", h.key, "asking", h.asks)
	}
	if r.lost = h.lost(r) || r.asked == "lost"; r.lost {
		s.o.Logger.Warn("redis has lost writes that it had confirmed; limits may admit that much again within a window", "key", h.key)
		if s.o.OnLoss != nil {
			s.o.OnLoss()
		}
	}
	h.turn, h.us, h.most, h.watched = turn, r.us, max(h.most, r.us), words[6]
	return r, nil
}

// watching is what watched becomes: by how much a server's clock is ahead of this host's, µs. It is "" while this process does
// not watch that clock, or does not know it well enough.
func (s *State) watching(h *hash) string {
	r := h.clock.Reading()
	if !s.epoch.confirmed || !r.Valid || r.Uncertainty > clock.Unseen {
		return ""
	}
	return strconv.FormatInt(r.NowUS-s.o.HostUS(), 10)
}

// gap is for how long nobody has watched the server's clock at a TIME; 0: not for longer than between turns.
func (h *hash) gap(us int64) int64 {
	watched := entryUS(h.watched)
	if us-watched <= GoneAfter.Microseconds() {
		return 0
	}
	return us - watched
}

// unwatched is the renewal that is due after a time in which no process watched the clocks: data count as lost if one has come
// further than this host's since, beyond what windows allow for.
func (s *State) unwatched() renewal {
	for _, h := range s.hashes() {
		var at, was int64
		if n, _ := fmt.Sscanf(h.watched, "%d %d", &at, &was); n < 2 { // none ever did
			continue
		}
		now := h.clock.Reading().NowUS
		allowed := max(0, now-at) / 1_000_000 * allowedPPM
		ahead := time.Duration(now-s.o.HostUS()-was-allowed) * time.Microsecond
		if due := s.epoch.due(false, ahead); due >= stepped {
			s.o.Logger.Warn("while no process of the region ran the redis clock came further than this host's; what was counted may have aged early",
				"key", h.key, "ahead", ahead)
			return due
		}
	}
	return keep
}

// hashes are those on all servers.
func (s *State) hashes() []*hash { return append(slices.Collect(maps.Values(s.primaries)), &s.hash) }

func texts(reply any) ([]string, bool) {
	list, ok := reply.([]any)
	words := make([]string, len(list))
	for i := range list {
		word, isText := list[i].(string)
		words[i], ok = word, ok && isText
	}
	return words, ok
}

// lost reports whether a turn has found the hash as it was before the last one. Our entry may also be gone because we
// took no turn for so long that another process has removed it.
func (h *hash) lost(r *reply) bool {
	if h.turn == 0 {
		return false
	}
	if words := strings.Fields(r.own); len(words) > 1 {
		turn, err := strconv.ParseInt(words[1], 10, 64)
		return err != nil || turn < h.turn
	}
	for i := 1; i < len(r.entries); i += 2 {
		if entryUS(r.entries[i]) >= h.us+kept.Microseconds() {
			return false
		}
	}
	return true
}

// entryUS is the TIME with which an entry or watched begins, 0 for what is none.
func entryUS(entry string) int64 {
	at, _, _ := strings.Cut(entry, " ")
	us, _ := strconv.ParseInt(at, 10, 64)
	return us
}

// observe notes the entries of the other processes, 'TIME turn regions epoch' each. After a time
// without the store each has GoneAfter anew.
func (s *State) observe(fields []string) {
	now, t := max(s.o.Now(), 1), s.o.Members
	t.Lock()
	defer t.Unlock()
	read := make(map[quota.Process]string, len(fields)/2)
	for i := 0; i+1 < len(fields); i += 2 {
		name, alone := strings.CutPrefix(fields[i], "alone:")
		boot, instance, _ := strings.Cut(name, ":")
		if run, err := strconv.ParseInt(boot, 10, 64); err == nil && alone == s.o.Alone {
			p := quota.Process{Region: t.Self.Region, Instance: instance, Boot: run}
			t.Entry(p)
			read[p] = fields[i+1]
		}
	}
	for p, m := range t.All {
		switch value := read[p]; {
		case value == "":
			m.Store = members.Store{Read: m.Store.Read}
			t.Prune(m)
		case m.Store.Entry != value || s.failed:
			m.Store.Moved = m.Store.Entry != "" && m.Store.Entry != value
			m.Store.Entry, m.Store.At, m.Store.Sees = value, now, nil
			if words := strings.Fields(value); len(words) == 4 && words[2] != "-" {
				m.Store.Sees = strings.Split(words[2], ",")
			}
		}
	}
}

// judge notes which processes of our region are alive, now that the store was read.
func (s *State) judge(now time.Duration) {
	t := s.o.Members
	t.Lock()
	defer t.Unlock()
	t.StoreRead = true
	for p, m := range t.All {
		if p.Region == t.Self.Region {
			m.Store.Read, m.Store.Alive = true, m.Store.Entry != "" && now-m.Store.At <= GoneAfter
		}
	}
}

// others is what the hash has of other processes, alive or not.
func (s *State) others() (all []members.Store) {
	s.o.Members.Lock()
	defer s.o.Members.Unlock()
	for _, m := range s.o.Members.All {
		if m.Store.Entry != "" {
			all = append(all, m.Store)
		}
	}
	return all
}

// watchPrimaries takes a turn on each other primary of a cluster, and has the epoch renewed where one has lost data or
// its clock was moved: it has partitions of the same limits. One that is away delays the turn, but does not fail it.
func (s *State) watchPrimaries(ctx context.Context) {
	if s.o.Primaries == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, turnTimeout)
	defer cancel()
	var g sync.WaitGroup
	var mu sync.Mutex
	primaries := s.o.Primaries()
	for key, h := range s.primaries { // one that is away, or no primary any more, closes nothing
		h.asks = h.asks && primaries[key] != nil
	}
	for key, of := range primaries {
		h := s.primaries[key]
		if h == nil {
			h = &hash{key: key, clock: of}
			s.primaries[key] = h
		}
		g.Go(func() {
			r, err := s.exchange(ctx, h, s.turn, "-", "", "", "", "", "")
			if err != nil {
				h.asks = false
			} else {
				mu.Lock()
				defer mu.Unlock()
				s.epoch.renew = max(s.epoch.renew, s.epoch.due(r.lost, r.step))
				if r.took {
					s.epoch.renew = max(s.epoch.renew, another)
				}
			}
		})
	}
	g.Wait()
	s.withhold()
}

// asks reports whether processes of the region are asked what they know of a server. The lock is held.
func (s *State) asks() bool {
	return slices.ContainsFunc(s.hashes(), func(h *hash) bool { return h.asks })
}

// Pause is how long after the beginning of a turn the next one is due: TurnEvery, and less
// while processes are asked what they know of a server.
func (s *State) Pause() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.asks() {
		return askEvery
	}
	return TurnEvery
}
