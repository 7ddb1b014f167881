package page

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"time"
)

// What a Stream keeps and allows.
const (
	// Every is the time between two events.
	Every = 500 * time.Millisecond
	// Step is the time that a point of the timeline covers, and Span that of all of them.
	Step = 5 * time.Second
	Span = 15 * time.Minute
	// MaxPolicies bounds the policies of the timeline that have points of their own; those that come
	// first in the sample do. At 24 bytes for each point all take 274 KiB, with those of Others.
	MaxPolicies = 64
	// Others is what stands for all other policies together. No policy has such a name.
	Others = "(others)"
	// MaxReaders bounds the streams that are open. The next is answered with 503.
	MaxReaders = 128

	maxChanges = 50 // of modes and states that are remembered
	backlog    = 8  // events that wait for a slow reader before it is dropped
	// writeTimeout bounds one event on its way to a reader.
	writeTimeout = 5 * time.Second
	// retryMS is how long a browser waits before it connects again.
	retryMS = 2000
	points  = int(Span / Step)

	eventStream = "text/event-stream"
)

// Sample is what a process knows at a moment.
type Sample struct {
	Regions  any      // what GET /v1/regions returns
	States   []State  // of this region and of its peers
	Policies []Policy // in an order that does not change
	Limits   []Limit  // of scope global
	Demo     any      // what a demo shows; nil otherwise
}

// State is the mode of our own region, or how it sees another.
type State struct{ Region, State, Reason string }

// Policy is what became of the requests of a policy.
type Policy struct {
	Name            string
	Allowed, Denied int64 // since the process began
	// Ratio is the largest measured usage of a window of a global limit, as a part of the limit,
	// among the windows that were measured since the sample before; 0 when none was.
	Ratio float64
}

// Limit is a global limit as this region holds it, in units.
type Limit struct {
	Policy       string           `json:"policy"`
	Name         string           `json:"name"`
	Units        int64            `json:"units"`
	WindowMS     int64            `json:"window_ms"`
	MaxOvershoot string           `json:"max_overshoot,omitempty"` // "" when there is no bound
	Share        int64            `json:"share"`                   // this region's while it is alone
	Lent         int64            `json:"lent"`
	Borrowed     int64            `json:"borrowed"`
	Partitions   int64            `json:"partitions"`     // that were used lately
	Used         map[string]int64 `json:"used,omitempty"` // by region, over all partitions
}

// Change is a mode or a state that became another. What lasts less than Every may be missing.
type Change struct {
	AtMS   int64  `json:"at_ms"` // Unix time
	Region string `json:"region"`
	From   string `json:"from"`
	To     string `json:"to"`
	Reason string `json:"reason,omitempty"`
}

// point is what became of a policy's requests in a step.
type point struct {
	allowed, denied int64
	ratio           float64
}

// Stream samples a process twice a second while Run runs, and sends what it saw to all readers.
// Safe for concurrent use.
type Stream struct {
	sample func() Sample

	mu       sync.Mutex
	closed   bool
	readers  map[chan []byte]struct{}
	policies []string            // in the order of the first sample that has them
	rings    map[string][]point  // by policy; the points of steps newest−points+1 to newest
	before   map[string][2]int64 // allowed and denied at the last sample, by policy
	newest   int64               // the step of the newest point: Unix time divided by Step
	first    int64               // the step of the first sample
	states   map[string]State    // by region
	changes  []Change            // oldest first
}

// New makes a stream of what sample returns. sample is called by Run alone.
func New(sample func() Sample) *Stream {
	return &Stream{
		sample: sample, readers: map[chan []byte]struct{}{}, rings: map[string][]point{}, before: map[string][2]int64{}, states: map[string]State{},
	}
}

// Run samples until ctx ends.
func (s *Stream) Run(ctx context.Context) error {
	ticker := time.NewTicker(Every)
	defer ticker.Stop()
	for {
		if err := s.tick(time.Now()); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
	}
}

// Close ends all streams, and those that come later at once.
func (s *Stream) Close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	for r := range s.readers {
		s.drop(r)
	}
}

func (s *Stream) drop(r chan []byte) {
	delete(s.readers, r)
	close(r)
}

// tick takes a sample and sends it.
func (s *Stream) tick(now time.Time) error {
	v := s.sample()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.keep(&v, now)
	if len(s.readers) == 0 {
		return nil
	}
	event, err := s.state(&v, now)
	if err != nil {
		return err
	}
	for r := range s.readers {
		select {
		case r <- event:
		default: // it connects again when it can read
			s.drop(r)
		}
	}
	return nil
}

// keep adds a sample to the timeline.
func (s *Stream) keep(v *Sample, now time.Time) {
	step := now.UnixNano() / int64(Step)
	if s.first == 0 {
		s.first, s.newest = step, step
	}
	s.advance(step)
	s.forget(v.Policies)
	for _, p := range v.Policies {
		last, before := s.point(p.Name), s.before[p.Name]
		last.allowed += p.Allowed - before[0]
		last.denied += p.Denied - before[1]
		last.ratio = max(last.ratio, p.Ratio)
		s.before[p.Name] = [2]int64{p.Allowed, p.Denied}
	}
	for _, next := range v.States {
		last, known := s.states[next.Region]
		s.states[next.Region] = next
		if known && last.State != next.State {
			s.changes = append(s.changes, Change{AtMS: now.UnixMilli(), Region: next.Region, From: last.State, To: next.State, Reason: next.Reason})
		}
	}
	s.changes = s.changes[max(0, len(s.changes)-maxChanges):]
}

// point is the newest point of a policy.
func (s *Stream) point(name string) *point {
	if s.rings[name] == nil && len(s.policies) >= MaxPolicies {
		name = Others
	}
	ring := s.rings[name]
	if ring == nil {
		ring = make([]point, points)
		s.rings[name], s.policies = ring, append(s.policies, name)
	}
	return &ring[points-1]
}

// forget drops the policies that are no longer there and have no points left. What was counted of them
// stays known, for when they come back.
func (s *Stream) forget(now []Policy) {
	s.policies = slices.DeleteFunc(s.policies, func(name string) bool {
		gone := !slices.ContainsFunc(now, func(p Policy) bool { return p.Name == name }) &&
			!slices.ContainsFunc(s.rings[name], func(p point) bool { return p != point{} })
		if gone {
			delete(s.rings, name)
		}
		return gone
	})
}

// advance moves the timeline on to a step. A clock that is set back by no more than a step adds to the newest
// point until it has caught up; by more, it takes the timeline with it, and readers get all of it anew.
func (s *Stream) advance(step int64) {
	if step < s.newest-1 {
		s.first += step - s.newest
		s.newest = step
		for r := range s.readers {
			s.drop(r)
		}
	}
	by := int(min(max(0, step-s.newest), int64(points)))
	for _, ring := range s.rings {
		copy(ring, ring[by:])
		clear(ring[points-by:])
	}
	s.newest = max(s.newest, step)
}

// stateEvent is what is known now.
type stateEvent struct {
	AtMS     int64         `json:"at_ms"`
	StepMS   int64         `json:"step_ms"` // when the newest point begins
	Regions  any           `json:"regions"`
	Policies []policyPoint `json:"policies"` // the newest point
	Limits   []Limit       `json:"limits"`
	Events   []Change      `json:"events"` // newest first
	Demo     any           `json:"demo,omitempty"`
}

type policyPoint struct {
	Name    string `json:"name"`
	Allowed int64  `json:"allowed"`
	Denied  int64  `json:"denied"`
	// Overshoot is units beyond the limit as a part of it, at least 0; null when no window was
	// measured.
	Overshoot *float64 `json:"overshoot"`
}

// historyEvent is the timeline, oldest first.
type historyEvent struct {
	StepMS   int64           `json:"step_ms"`
	EveryMS  int64           `json:"every_ms"`
	Points   int             `json:"points"`
	Policies []policyHistory `json:"policies"`
}

type policyHistory struct {
	Name      string     `json:"name"`
	Allowed   []int64    `json:"allowed"`
	Denied    []int64    `json:"denied"`
	Overshoot []*float64 `json:"overshoot"`
}

func (p *point) overshoot() *float64 {
	if p.ratio == 0 {
		return nil
	}
	over := max(0, p.ratio-1)
	return &over
}

func (s *Stream) state(v *Sample, now time.Time) ([]byte, error) {
	e := stateEvent{AtMS: now.UnixMilli(), StepMS: s.newest * Step.Milliseconds(), Regions: v.Regions, Limits: v.Limits, Demo: v.Demo, Events: slices.Clone(s.changes)}
	slices.Reverse(e.Events)
	for _, name := range s.policies {
		p := &s.rings[name][points-1]
		e.Policies = append(e.Policies, policyPoint{name, p.allowed, p.denied, p.overshoot()})
	}
	return encode("state", &e)
}

func (s *Stream) history() ([]byte, error) {
	seen := int(min(s.newest-s.first+1, int64(points)))
	e := historyEvent{StepMS: s.newest * Step.Milliseconds(), EveryMS: Step.Milliseconds(), Points: points}
	for _, name := range s.policies {
		h := policyHistory{Name: name}
		ring := s.rings[name][points-seen:]
		for i := range ring {
			h.Allowed, h.Denied, h.Overshoot = append(h.Allowed, ring[i].allowed), append(h.Denied, ring[i].denied), append(h.Overshoot, ring[i].overshoot())
		}
		e.Policies = append(e.Policies, h)
	}
	return encode("history", &e)
}

// encode is an event of one line of JSON, which has no line break of its own.
func encode(name string, v any) ([]byte, error) {
	data, err := json.Marshal(v)
	if err != nil {
		return nil, fmt.Errorf("encode the page's %s: %w", name, err)
	}
	return fmt.Appendf(nil, "event: %s\ndata: %s\n\n", name, data), nil
}

// open returns the first event of a reader and those that follow; nil when there are too many
// readers.
func (s *Stream) open() (first []byte, events chan []byte, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed || len(s.readers) >= MaxReaders {
		return nil, nil, nil
	}
	if first, err = s.history(); err != nil {
		return nil, nil, err
	}
	events = make(chan []byte, backlog)
	s.readers[events] = struct{}{}
	return first, events, nil
}

func (s *Stream) leave(r chan []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, ok := s.readers[r]; ok {
		s.drop(r)
	}
}

// ServeHTTP streams events until the reader leaves or falls behind. Events are the heartbeat, too.
func (s *Stream) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	if r.Method == http.MethodHead { // it has no end to wait for
		h.Set("Content-Type", eventStream)
		return
	}
	first, events, err := s.open()
	if err != nil || events == nil {
		h.Set("Retry-After", strconv.Itoa(retryMS/1000))
		http.Error(w, fmt.Sprintf("At most %d pages are kept up to date at a time. Close one, or try again later.", MaxReaders), http.StatusServiceUnavailable)
		return
	}
	defer s.leave(events)
	rc := http.NewResponseController(w)
	_ = rc.SetReadDeadline(time.Time{}) // that of the request would end the stream; where there is none, none ends it
	h.Set("Content-Type", eventStream)
	h.Set("X-Accel-Buffering", "no")
	send := func(event []byte) bool {
		_ = rc.SetWriteDeadline(time.Now().Add(writeTimeout)) // as above
		if _, err := w.Write(event); err != nil {
			return false
		}
		return rc.Flush() == nil
	}
	if !send(fmt.Appendf(nil, "retry: %d\n%s", retryMS, first)) {
		return
	}
	for {
		select {
		case <-r.Context().Done():
			return
		case event, ok := <-events:
			if !ok || !send(event) {
				return
			}
		}
	}
}
