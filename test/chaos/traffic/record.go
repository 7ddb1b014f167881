package traffic

import (
	"slices"
	"sync"
	"time"
)

// Record is one request and what became of it. Times are since the history began, on
// the monotonic clock.
type Record struct {
	Region string
	Class  string
	Tenant string
	Cost   int64
	Bare   bool          // asked of the bare handler
	Batch  bool          // asked with others
	Due    time.Duration // when it was to be sent
	Call   time.Duration // when it was sent
	Return time.Duration // when the answer was whole, or given up

	Err    string // why there is no answer, "" when there is one
	Status int
	Answer Answer
}

// Took is the latency, from when the request was due.
func (r *Record) Took() time.Duration { return r.Return - r.Due }

// Admitted reports whether the request was let through.
func (r *Record) Admitted() bool { return r.Err == "" && r.Answer.Allowed }

// Answer is the answer to a check.
type Answer struct {
	Allowed      bool   `json:"allowed"`
	Limit        int64  `json:"limit"`
	Remaining    int64  `json:"remaining"`
	RetryAfterMS int64  `json:"retry_after_ms"`
	Mode         string `json:"mode"`
	Basis        string `json:"basis"`
	Reason       string `json:"reason"`
	Explain      struct {
		StoreTimeUS int64   `json:"store_time_us"` // 0 when the store was not asked
		Limits      []Bound `json:"limits"`
	} `json:"explain"`
}

// Bound is what is explained of a limit that has one.
type Bound struct {
	Bound struct {
		Binds string `json:"binds"`
	} `json:"bound"`
}

// Binds is what decided under the bound of the first limit; "" where there is none, or it was not asked.
func (a *Answer) Binds() string {
	if len(a.Explain.Limits) == 0 || a.Explain.StoreTimeUS == 0 {
		return ""
	}
	return a.Explain.Limits[0].Bound.Binds
}

// Event is something that was done to the world.
type Event struct {
	At   time.Duration
	Text string
}

// History is everything that happened in a run. It is safe for concurrent use; Records
// and Events are to be read when the traffic has ended.
type History struct {
	began time.Time

	mu      sync.Mutex
	records []Record
	events  []Event
}

// NewHistory begins now.
func NewHistory() *History { return &History{began: time.Now()} }

// Now is the time since the beginning.
func (h *History) Now() time.Duration { return time.Since(h.began) }

// WallUS is the wall clock at a time of the history, µs since the epoch.
func (h *History) WallUS(at time.Duration) int64 { return h.began.UnixMicro() + at.Microseconds() }

// Add keeps the checks of a request that was sent at a time and is answered now.
func (h *History) Add(checks []Record, call time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	now := h.Now()
	for i := range checks {
		checks[i].Call, checks[i].Return = call, now
	}
	h.records = append(h.records, checks...)
}

// Note keeps an event and returns when it was.
func (h *History) Note(text string) time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	at := h.Now()
	h.events = append(h.events, Event{At: at, Text: text})
	return at
}

// Records are all so far, in the order of their answers.
func (h *History) Records() []Record {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.records)
}

// Events are all so far.
func (h *History) Events() []Event {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.events)
}
