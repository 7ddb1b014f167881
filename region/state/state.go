package state

import (
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/regiond/regiond/clock"
	"github.com/regiond/regiond/internal/base/signal"
	"github.com/regiond/regiond/quota/loan"
	"github.com/regiond/regiond/region"
	"github.com/regiond/regiond/region/members"
)

const (
	// Key is the region's hash, which lies in one slot of a cluster.
	Key = "rl:region"
	// TurnEvery is how often a process renews its entry and reads the others'.
	TurnEvery = time.Second
	// GoneAfter is how long an entry may stay as it is before its process counts as dead:
	// three turns that failed or came late.
	GoneAfter = 4 * time.Second
	// askEvery is how often a turn is taken while processes are asked what they know of another server.
	askEvery = 100 * time.Millisecond
	// turnTimeout bounds one turn.
	turnTimeout = 500 * time.Millisecond
	// adoptTries is how often Adopt tries again when siblings adopt at the same time.
	adoptTries = 10
)

//go:embed region.lua
var script string

// ErrAway is wrapped by errors that say that the store did not answer.
var ErrAway = errors.New("redis did not answer")

// Eval runs a script on the store, on the server that holds its key.
type Eval func(ctx context.Context, script, key string, args ...any) (reply any, err error)

// Options are what New needs.
type Options struct {
	// Members is the table of processes, of which the state writes Store.
	Members *members.Table
	Eval    Eval // nil: the state is kept in memory, and no sibling shares it
	// TimeUS is the clock of a store in memory, where Eval is nil; nil is this host's. Lost says that there was one before, and
	// what that had is lost.
	TimeUS func() int64
	Lost   bool
	// Clock is that of the server which holds Key; each turn is a sample of it. nil: the state has one of its own.
	Clock *clock.Clock
	// Primaries are the other primaries of a cluster, by a key that each holds, and their clocks; nil: there are none.
	Primaries func() map[string]*clock.Clock
	// Alone says that this process exchanges usage with none: no other counts on it.
	Alone  bool
	Now    func() time.Duration // this process's monotonic clock
	HostUS func() int64         // its host's clock, µs; nil: time.Now
	OnLoss func()               // is called with each loss of data that this process notices; it may be nil
	Logger *slog.Logger
}

// State is one process's side of its region's state. Adopt, See, Settle and Agree may be called
// from anywhere, also while Run runs. Turn, Pause, Requested and Leave are for Run, or for a
// simulation instead of it.
type State struct {
	o        Options
	snapshot atomic.Pointer[Snapshot]
	turns    chan struct{}              // capacity 1
	inForce  atomic.Pointer[loan.Store] // see Store
	excused  atomic.Int64               // of epoch
	seen     atomic.Uint32              // of Seen: the largest
	first    atomic.Uint32              // of epoch while no loss of data is known, else 0
	missing  atomic.Int64               // of Lose: TIME at which the newest of what is gone was there; 0: all of it is in the hash

	mu   sync.Mutex // a turn at a time; guards what follows
	file Topology   // proposed last
	turn int64      // the number of the last one
	hash hash       // that of Key
	// primaries have the hashes on other primaries, by their keys.
	primaries map[string]*hash
	text      string    // of the topology in force; "" before the first turn, and once the hash has lost it
	last      *Topology // in force last
	failed    bool      // the last turn did
	refused   string    // why file is not in force, as logged
	adopted   bool      // a file was
	adopts    bool      // file is not in force yet
	epoch     epoch
	gap       int64 // by TIME, µs, before our first turn nobody watched the clock for so long; 0: that is in agreedUS
	agreedUS  int64 // the least AgreedUS of a topology that was agreed before our first turn

	inputs sync.Mutex // guards sees, settle and agree
	sees   []string
	settle string // text of the topology that every process has; "" for none
	agree  string // likewise, while shares of before may still count
}

// Snapshot is the region's state as last read. It is not changed.
type Snapshot struct {
	// Read reports whether the store was read at all. Before, nothing is known of earlier
	// revisions.
	Read     bool
	Topology Topology
	// Bounds is the least shares under topologies beside our file's; nil when there are none.
	Bounds region.Floor
	// Agreed reports whether every process of every region has the topology, which is our file's, and AgreedFor for how long
	// that has been so at least, by the store's TIME: 0 while that may have stepped, and from the last step or loss on.
	Agreed    bool
	AgreedFor time.Duration
	// Refused is why the file is not in force; "" when it is. That is so while siblings
	// have a newer one. Adopted reports whether a file of this process ever was.
	Refused string
	Adopted bool
	Text    string // of the topology in force: another one is another topology
}

// New returns a State that knows nothing yet.
func New(o Options) *State {
	if o.Clock == nil {
		o.Clock, _ = clock.New(clock.Options{Now: o.Now, Logger: o.Logger}) // fails only with a Meter
	}
	if o.HostUS == nil {
		o.HostUS = func() int64 { return time.Now().UnixMicro() }
	}
	if o.TimeUS == nil {
		o.TimeUS = o.HostUS
	}
	s := &State{o: o, turns: make(chan struct{}, 1), hash: hash{key: Key, clock: o.Clock}, primaries: map[string]*hash{}}
	s.snapshot.Store(&Snapshot{})
	s.inForce.Store(&loan.Store{})
	if o.Eval == nil { // below all that are made of TIME
		s.epoch.store.Epoch, s.epoch.confirmed = 1+rand.Uint32N(1<<30), true
		if o.Lost {
			s.epoch.store.Lost, s.epoch.store.LostIn = o.TimeUS(), s.epoch.store.Epoch
			s.epoch.store.DataLost = s.epoch.store.Lost
		}
	}
	return s
}

// Snapshot is the region's state as last read.
func (s *State) Snapshot() *Snapshot { return s.snapshot.Load() }

// Window is the longest window of a limit under which loans may matter still, and how long reservations may hold units of it,
// by policy.limit, µs; 0: nothing is known of it.
func (s *State) Window(limit string) (us, maxTTLUS int64) {
	w := s.Snapshot().Topology.Windows[limit]
	return w.US, w.MaxTTLUS
}

// Adopt puts a file's topology in force, or says why it is not: the region has a newer
// revision, or other regions or weights under this one. With ErrAway the store could not
// be asked; Run then goes on trying.
func (s *State) Adopt(ctx context.Context, top *region.Topology) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	before := s.file
	s.file = Of(top)
	same := s.file.Revision == before.Revision && slices.Equal(s.file.Weights, before.Weights)
	if same && maps.Equal(s.file.Windows, before.Windows) {
		return nil // Run goes on with it
	}
	s.adopts = true
	err := s.take(ctx)
	if same {
		return nil // Run goes on with it
	}
	if err != nil && before.Weights != nil { // what this process went by stays
		s.file = before
		signal.Send(s.turns)
	}
	return err
}

// See publishes from which regions this process receives; nil while it joins.
func (s *State) See(regions []string) {
	s.inputs.Lock()
	changed := !slices.Equal(s.sees, regions) || (s.sees == nil) != (regions == nil)
	s.sees = regions
	s.inputs.Unlock()
	if changed {
		signal.Send(s.turns)
	}
}

// Settle notes that every process of every region has the topology of a snapshot: earlier
// ones bound no share any more.
func (s *State) Settle(of *Snapshot) { s.input(&s.settle, of.Text) }

// Agree notes that every process of every region has the topology of a snapshot, while what was used under earlier ones may
// still count.
func (s *State) Agree(of *Snapshot) { s.input(&s.agree, of.Text) }

// input sets an input that is guarded by inputs, and has a turn taken soon if it is another one.
func (s *State) input(to *string, text string) {
	s.inputs.Lock()
	changed := *to != text
	*to = text
	s.inputs.Unlock()
	if changed {
		signal.Send(s.turns)
	}
}

// Run takes a turn every TurnEvery, and one soon after each change, until ctx ends. Then
// it removes this process's entry.
func (s *State) Run(ctx context.Context) error {
	for {
		began := time.Now()
		s.Turn(ctx)
		select {
		case <-ctx.Done():
			s.Leave()
			return nil
		case <-s.turns:
		case <-time.After(s.Pause() - time.Since(began)):
		}
	}
}

// Turn takes a turn. What fails is logged.
func (s *State) Turn(ctx context.Context) {
	s.mu.Lock()
	defer s.mu.Unlock()
	_ = s.take(ctx)
}

// Requested receives when a turn should come before TurnEvery is over.
func (s *State) Requested() <-chan struct{} { return s.turns }

// Leave takes the last turn, which shows a loss since the one before, and removes this process's entry. It is the last step.
func (s *State) Leave() {
	if s.o.Eval == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), turnTimeout)
	defer cancel()
	s.Turn(ctx)
	for _, h := range s.hashes() {
		if _, err := s.o.Eval(ctx, script, h.key, s.field(), "", "", "", "", "", "", 0, "", 0); err != nil {
			s.o.Logger.Debug("this process's entry in redis stays until it expires", "key", h.key, "error", err)
		}
	}
}

// field names this process in the hash: with a name that no process reads as a sibling's if it is alone.
func (s *State) field() string {
	name := strconv.FormatInt(s.o.Members.Self.Boot, 10) + ":" + s.o.Members.Self.Instance
	if s.o.Alone {
		return "alone:" + name
	}
	return name
}

// take is one turn: it writes what is new and publishes a Snapshot. The lock is held.
func (s *State) take(ctx context.Context) error {
	s.turn++
	s.watchPrimaries(ctx)
	ctx, cancel := context.WithTimeout(ctx, turnTimeout)
	defer cancel()
	replace := ""
	for range adoptTries {
		nowUS, again, err := s.renew(ctx, replace)
		if err != nil {
			return s.fail(err)
		}
		if replace != "" && replace == s.text { // it is in force: proposed again, it would have other times
			s.adopts = false
		}
		if replace = ""; again {
			continue
		}
		if s.file.Weights == nil { // none was adopted: no limit has a bound
			s.publish(&Topology{}, nil, nowUS)
			return nil
		}
		inForce, err := s.parse()
		if err != nil {
			return s.fail(err)
		}
		if s.gap > 0 && inForce != nil {
			s.agreedUS, s.gap = inForce.AgreedUS+s.gap, 0
		}
		want, refused := s.want(inForce, nowUS)
		if want == s.text || refused != nil {
			s.publish(inForce, refused, nowUS)
			return refused
		}
		replace = want
	}
	return s.fail(errors.New("other processes of the region keep changing the topology"))
}

// want is what the topology in force should become. The first process to have a longer window of a bounded limit begins another
// epoch: then loans held are void, and records stand for as long as that window needs. So does the first that takes reservations:
// loans of before cover none.
func (s *State) want(inForce *Topology, nowUS int64) (text string, refused error) {
	next := s.file
	if inForce != nil {
		if next, refused = inForce.next(s.file, nowUS, s.epoch.store.Lost, s.adopts); refused != nil {
			return s.text, refused
		}
		for name, w := range inForce.Windows {
			own := s.file.Windows[name]
			again := w.UntilUS > 0 && w.US <= own.US && w.MaxTTLUS <= own.MaxTTLUS // loans were made under a shorter one
			if s.adopts && (again || w.US < own.US || w.MaxTTLUS == 0 && own.MaxTTLUS > 0) {
				s.epoch.renew = max(s.epoch.renew, another)
			}
		}
	}
	s.inputs.Lock()
	switch {
	case s.text == "":
	case s.settle == s.text:
		next.Floor, next.AgreedUS = nil, 0
	case s.agree == s.text && next.Floor != nil && next.AgreedUS == 0:
		next.AgreedUS = nowUS
	case next.AgreedUS > 0:
		next.AgreedUS = max(next.AgreedUS, s.agreedUS)
	}
	s.inputs.Unlock()
	encoded, err := json.Marshal(next)
	if err != nil {
		return s.text, err
	}
	return string(encoded), nil
}

// renew takes a turn on the region's hash, and notes what it says of siblings. again asks for another turn at once, to
// renew the epoch.
func (s *State) renew(ctx context.Context, replace string) (nowUS int64, again bool, err error) {
	if s.o.Eval == nil {
		return s.inMemory(replace)
	}
	s.inputs.Lock()
	sees := "-"
	if s.sees != nil {
		sees = strings.Join(s.sees, ",")
	}
	s.inputs.Unlock()
	missing := s.missing.Load()
	known, top, renew := s.epoch.args(missing, s.seen.Load())
	value := fmt.Sprintf("%s %d", sees, s.epoch.inForce().Epoch)
	r, err := s.exchange(ctx, &s.hash, s.turn, value, s.text, replace, known, top, renew)
	if err != nil {
		return 0, false, err
	}
	if s.epoch.since == 0 {
		s.gap = s.hash.gap(r.us)
	}
	s.text = r.topology
	s.observe(r.entries)
	now := s.o.Now()
	sure := s.hash.watched == "" || s.hash.clock.Reading().Uncertainty <= clock.Unseen/2
	if err := s.epoch.read(r, now, s.others(), sure, s.unwatched); err != nil {
		return 0, false, err
	}
	if s.withhold() {
		return r.us, true, nil
	}
	s.missing.CompareAndSwap(missing, 0)
	return r.us, false, nil
}

// inMemory is a turn where nothing is shared.
func (s *State) inMemory(replace string) (nowUS int64, again bool, err error) {
	if replace != "" {
		s.text = replace
	}
	sent := s.o.Clock.Now()
	nowUS = s.o.TimeUS()
	_, err = s.o.Clock.Observe(sent, nowUS)
	if s.epoch.renew == reopen {
		s.epoch.store.Lost, s.epoch.store.DataLost = -nowUS, 0
	}
	if s.epoch.renew != keep {
		s.epoch.store.Epoch++
		s.epoch.renew = keep
	}
	return nowUS, false, err
}

func (s *State) parse() (*Topology, error) {
	if s.text == "" {
		return s.last, nil // what the hash has lost we know
	}
	t := &Topology{}
	if err := json.Unmarshal([]byte(s.text), t); err != nil {
		return nil, fmt.Errorf("field topology of the key %s: %w", Key, err)
	}
	return t, nil
}

// agreedFor is Snapshot.AgreedFor of a topology at a TIME.
func (s *State) agreedFor(inForce *Topology, nowUS int64) time.Duration {
	if s.epoch.inForce().Epoch == 0 {
		return 0
	}
	return time.Duration(max(0, nowUS-max(inForce.AgreedUS, s.epoch.excused()))) * time.Microsecond
}

// publish makes a Snapshot of what was read at a TIME.
func (s *State) publish(inForce *Topology, refused error, nowUS int64) {
	why := ""
	if refused != nil {
		why = refused.Error()
	}
	if why != s.refused && why != "" {
		s.o.Logger.Warn("the topology of this process is not in force", "error", why)
	}
	s.adopted, s.adopts = s.adopted || refused == nil, false
	if s.failed {
		s.o.Logger.Info("the region's state is read again")
	}
	s.failed, s.refused, s.last = false, why, inForce
	s.judge(s.o.Now())
	shown := &Snapshot{
		Read: true, Topology: *inForce, Bounds: inForce.bounds(s.file.Weights), Refused: why, Adopted: s.adopted, Text: s.text,
	}
	if inForce.AgreedUS > 0 && slices.Equal(inForce.Weights, s.file.Weights) {
		shown.Agreed, shown.AgreedFor = true, s.agreedFor(inForce, nowUS)
	}
	s.snapshot.Store(shown)
	store := s.paced(s.epoch.inForce())
	if s.asks() {
		store = loan.Store{}
	}
	s.force(store)
	first := s.epoch.first
	if s.epoch.store.LostIn != 0 || s.epoch.store.Lost < 0 {
		first = 0
	}
	s.first.Store(first)
	s.excused.Store(s.epoch.excused())
}

// allowedPPM is how fast a clock may be without windows being longer for it.
const allowedPPM = 500

// paced is an epoch with the rate of the store's clock, that of the fastest primary; none where one cannot be allowed for.
func (s *State) paced(of loan.Store) loan.Store {
	for _, h := range s.hashes() {
		drift := h.clock.Reading().Drift
		if drift.Excessive() {
			return loan.Store{Drifting: true}
		}
		if fast := int64(math.Ceil(drift.Fastest())); fast > allowedPPM {
			of.FastPPM = max(of.FastPPM, fast)
		}
	}
	return of
}

func (s *State) fail(err error) error {
	if !s.failed {
		s.o.Logger.Warn("the region's state cannot be read or written", "error", err)
	}
	s.failed = true
	return fmt.Errorf("%w: %w", ErrAway, err)
}
