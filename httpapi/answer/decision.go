package answer

import (
	"bytes"
	"encoding/json"
	"slices"
	"time"

	"github.com/regiond/regiond/quota"
)

// Body is an answer about a decision, a problem, or both, with its members in the order of openapi.yaml. What is nil is left out.
type Body struct {
	Type   string            `json:"type,omitempty"`
	Title  string            `json:"title,omitempty"`
	Status int               `json:"status,omitempty"`
	Detail string            `json:"detail,omitempty"`
	Errors []json.RawMessage `json:"errors,omitempty"`

	Charged *int64 `json:"charged,omitempty"`
	Over    *bool  `json:"over,omitempty"`
	*settlement
	Allowed     *bool        `json:"allowed,omitempty"`
	Reservation *reservation `json:"reservation,omitempty"`
	ID          string       `json:"id,omitempty"`
	Policy      *string      `json:"policy,omitempty"`

	// The limit that sums up the decision.
	Name      string `json:"name,omitempty"`
	Limit     *int64 `json:"limit,omitempty"`
	Remaining *int64 `json:"remaining,omitempty"`

	RetryAfterMS *int64    `json:"retry_after_ms,omitempty"`
	ResetAfterMS *int64    `json:"reset_after_ms,omitempty"`
	Basis        string    `json:"basis,omitempty"`
	Mode         string    `json:"mode,omitempty"`
	Reason       string    `json:"reason,omitempty"`
	Enforcement  string    `json:"enforcement,omitempty"`
	Override     *override `json:"override,omitempty"`
	WouldDeny    bool      `json:"would_deny,omitempty"`

	Violated []string           `json:"violated-policies,omitzero"`
	Limits   []limit            `json:"limits,omitzero"`
	Explain  *quota.Explanation `json:"explain,omitempty"`
}

type settlement struct {
	Released bool  `json:"released"`
	Overrun  int64 `json:"overrun"`
	Replayed bool  `json:"replayed"`
	Pending  bool  `json:"pending"`
}

type reservation struct {
	ID          string `json:"id"`
	Amount      int64  `json:"amount"`
	ExpiresInMS int64  `json:"expires_in_ms"`
	Clamped     bool   `json:"clamped,omitempty"`
}

// override is which one of the tenant was in force.
type override struct {
	Version   string `json:"version"`
	ExpiresAt string `json:"expires_at,omitempty"`
}

type limit struct {
	Name      string `json:"name"`
	Limit     int64  `json:"limit"`
	WindowMS  int64  `json:"window_ms,omitempty"`
	Calendar  string `json:"calendar,omitempty"`
	Ends      string `json:"ends,omitempty"`
	Remaining int64  `json:"remaining"`
	Held      *int64 `json:"held,omitempty"`
	Scope     string `json:"scope"`
	Ceiling   int64  `json:"ceiling"`

	Used    *int64              `json:"used,omitempty"`
	EndsAt  string              `json:"ends_at,omitempty"`
	Regions []quota.RegionUsage `json:"regions,omitzero"`
}

// JSON returns a value as a line of JSON, null for what has none.
func JSON(v any) []byte {
	var b bytes.Buffer
	Write(&b, v)
	return b.Bytes()
}

// Write appends what JSON returns.
func Write(b *bytes.Buffer, v any) {
	e := json.NewEncoder(b)
	e.SetEscapeHTML(false)
	if e.Encode(v) != nil {
		b.WriteString("null\n")
	}
}

// Decision is an answer that says whether a request may pass. A check that was shed lists no limits: none was read.
func Decision(d *quota.Decision) *Body {
	b := describe(d)
	b.Allowed = &d.Allowed
	if r := d.Reservation; r != nil {
		b.Reservation = &reservation{r.ID, r.Amount, r.ExpiresIn.Milliseconds(), r.Clamped}
	}
	if d.Reason != quota.ReasonSuspended { // when, nobody knows
		retry := d.RetryAfter()
		if d.TurnedAway() {
			retry = max(retry, time.Second)
		}
		b.RetryAfterMS = new(ceil(retry, time.Millisecond))
	}
	if !d.Allowed || d.WouldDeny {
		b.Violated = violated(d)
	}
	return b
}

// Report is the answer to a report that was charged. It was not asked whether it may
// happen, and a wait for as much again is not known.
func Report(d *quota.Decision) *Body {
	b := describe(d)
	b.Charged, b.Over = &d.Cost, new(slices.ContainsFunc(d.Limits, func(s quota.LimitState) bool { return s.Remaining <= 0 }))
	return b
}

// Settled is the answer to a settle that was carried out.
func Settled(d *quota.Decision) *Body {
	b, s := describe(d), d.Settlement
	b.Charged, b.settlement = &s.Charged, &settlement{s.Released, s.Overrun, d.Replayed, s.Pending}
	return b
}

// Refusal is what a gateway's client gets of a decision: its id and the limits that refused.
func Refusal(d *quota.Decision) *Body { return &Body{ID: d.ID.String(), Violated: violated(d)} }

// violated are the limits that refused, as the header fields name them. The draft calls limits policies.
func violated(d *quota.Decision) []string {
	names := []string{}
	for _, name := range d.Violated() {
		names = append(names, d.Policy+"."+name)
	}
	return names
}

// describe has the terms of a decision, and what is left of its limits.
func describe(d *quota.Decision) *Body {
	b := &Body{
		ID: d.ID.String(), Policy: &d.Policy, Basis: d.Basis.String(), Mode: d.Mode.String(), Enforcement: d.Enforcement.String(),
		WouldDeny: d.WouldDeny, Limits: make([]limit, len(d.Limits)), Explain: d.Explanation,
	}
	reset := time.Duration(0)
	if head := d.Headline(); head >= 0 {
		s := &d.Limits[head]
		b.Name, b.Limit, b.Remaining, reset = s.Limit.Name, &s.Limit.Units, new(max(0, s.Remaining)), s.ResetAfter
	}
	b.ResetAfterMS = new(ceil(reset, time.Millisecond))
	if d.Reason != quota.ReasonNone {
		b.Reason = d.Reason.String()
	}
	if v := d.Override; v != nil {
		b.Override = &override{v.Version.String(), timeText(v.ExpiresUS)}
	}
	for i := range d.Limits {
		s, l := &d.Limits[i], &b.Limits[i]
		*l = limit{Name: s.Limit.Name, Limit: s.Limit.Units, Remaining: max(0, s.Remaining), Scope: s.Limit.Scope.String(), Ceiling: s.Ceiling}
		if c := s.Limit.Calendar; c == nil {
			l.WindowMS = ceil(s.Limit.Window, time.Millisecond)
		} else if l.Calendar = c.Unit.String(); d.StoreUS != 0 {
			l.Ends = s.EndText(d.StoreUS)
		}
		if s.Limit.Holds() {
			l.Held = &s.Held
		}
		if d.Usage == nil {
			continue
		}
		l.Used, l.Regions = new(max(0, s.Used()-s.Held)), d.Usage[i]
		if d.StoreUS != 0 {
			l.EndsAt = timeText(d.StoreUS + s.ResetAfter.Microseconds())
		}
	}
	return b
}

// timeText is "" for 0.
func timeText(us int64) string {
	if us <= 0 {
		return ""
	}
	return quota.TimeText(us)
}
