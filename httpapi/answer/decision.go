package answer

import (
	"bytes"
	"encoding/json"
	"slices"
	"strconv"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/regiond/regiond/quota"
)

// Object is a JSON object that is being written, member by member. Decisions are written by hand:
// they are every answer.
type Object []byte

// Room for most texts, in bytes.
const (
	Small = 512  // an allowed check with two limits
	Large = 1024 // a denial
)

// NewObject returns an object without members, and with room for its text.
func NewObject(room int) Object { return append(make(Object, 0, room), '{') }

// End returns the text of an object that is a whole answer.
func (o Object) End() []byte { return append(o, '}', '\n') }

// name begins a member.
func (o *Object) name(name string) {
	if (*o)[len(*o)-1] != '{' {
		*o = append(*o, ',')
	}
	*o = append(append(append(*o, '"'), name...), '"', ':')
}

// text appends a string. The ignored error is invalid UTF-8, which becomes U+FFFD.
func (o *Object) text(name, value string) {
	o.name(name)
	*o, _ = jsontext.AppendQuote(*o, value)
}

// word appends a string that nothing has to be escaped in.
func (o *Object) word(name, value string) {
	o.name(name)
	*o = append(append(append(*o, '"'), value...), '"')
}

func (o *Object) id(id quota.DecisionID) {
	o.name("id")
	*o = append(id.Append(append(*o, '"')), '"')
}

// Number appends a whole number.
func (o *Object) Number(name string, n int64) {
	o.name(name)
	*o = strconv.AppendInt(*o, n, 10)
}

func (o *Object) boolean(name string, v bool) {
	o.name(name)
	*o = strconv.AppendBool(*o, v)
}

// JSON returns a rare value as a line of JSON, null for what has none.
func JSON(v any) []byte {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if e.Encode(v) != nil {
		return []byte("null\n")
	}
	return b.Bytes()
}

// Decision appends an answer in the order of openapi.yaml. A check that was shed lists no limits: none was read.
func (o *Object) Decision(d *quota.Decision) {
	o.boolean("allowed", d.Allowed)
	if d.Reservation != nil {
		o.reservation(d.Reservation)
	}
	o.limits(d, true)
}

// Report appends the answer to a report that was charged. It was not asked whether it may
// happen, and a wait for as much again is not known.
func (o *Object) Report(d *quota.Decision) {
	o.Number("charged", d.Cost)
	o.boolean("over", slices.ContainsFunc(d.Limits, func(s quota.LimitState) bool { return s.Remaining <= 0 }))
	o.limits(d, false)
}

// Settled appends the answer to a settle.
func (o *Object) Settled(d *quota.Decision) {
	s := d.Settlement
	o.Number("charged", s.Charged)
	o.boolean("released", s.Released)
	o.Number("overrun", s.Overrun)
	o.boolean("replayed", d.Replayed)
	o.boolean("pending", s.Pending)
	o.limits(d, false)
}

// reservation appends what is held for a decision.
func (o *Object) reservation(r *quota.Reservation) {
	o.name("reservation")
	*o = append(*o, '{')
	o.text("id", r.ID)
	o.Number("amount", r.Amount)
	o.Number("expires_in_ms", r.ExpiresIn.Milliseconds())
	if r.Clamped {
		o.boolean("clamped", true)
	}
	*o = append(*o, '}')
}

// limits appends the policy and what is left of its limits; asked is set where the
// decision says whether a request may pass, and not for a report.
func (o *Object) limits(d *quota.Decision, asked bool) {
	o.id(d.ID)
	o.text("policy", d.Policy)
	o.headline(d, asked)
	o.word("basis", d.Basis.String())
	o.word("mode", d.Mode.String())
	if d.Reason != quota.ReasonNone {
		o.word("reason", d.Reason.String())
	}
	o.word("enforcement", d.Enforcement.String())
	if v := d.Override; v != nil {
		o.override(v)
	}
	if d.WouldDeny {
		o.boolean("would_deny", true)
	}
	if asked && (!d.Allowed || d.WouldDeny) {
		o.violated(d)
	}
	o.name("limits")
	*o = append(*o, '[')
	for i := range d.Limits {
		s := &d.Limits[i]
		if i > 0 {
			*o = append(*o, ',')
		}
		*o = append(*o, '{')
		o.limit(s, d.StoreUS)
		if d.Usage != nil {
			o.usage(s, d.StoreUS, d.Usage[i])
		}
		*o = append(*o, '}')
	}
	*o = append(*o, ']')
	if d.Explanation != nil {
		o.name("explain")
		*o = append(*o, bytes.TrimSpace(JSON(d.Explanation))...)
	}
}

// override appends which one of the tenant was in force.
func (o *Object) override(v *quota.Override) {
	o.name("override")
	*o = append(*o, '{')
	o.word("version", v.Version.String())
	if v.ExpiresUS > 0 {
		o.word("expires_at", quota.TimeText(v.ExpiresUS))
	}
	*o = append(*o, '}')
}

// limit appends a limit as it was at a time of the store, 0 where that was not asked.
func (o *Object) limit(s *quota.LimitState, storeUS int64) {
	o.text("name", s.Limit.Name)
	o.Number("limit", s.Limit.Units)
	switch c := s.Limit.Calendar; {
	case c == nil:
		o.Number("window_ms", ceil(s.Limit.Window, time.Millisecond))
	case storeUS == 0:
		o.word("calendar", c.Unit.String())
	default:
		o.word("calendar", c.Unit.String())
		o.text("ends", s.EndText(storeUS))
	}
	o.Number("remaining", max(0, s.Remaining))
	if s.Limit.Holds() {
		o.Number("held", s.Held)
	}
	o.word("scope", s.Limit.Scope.String())
	o.Number("ceiling", s.Ceiling)
}

// usage appends what is used of a limit, until when, and by which region. storeUS is 0 where the store was not asked.
func (o *Object) usage(s *quota.LimitState, storeUS int64, regions []quota.RegionUsage) {
	o.Number("used", max(0, s.Used()-s.Held))
	if storeUS > 0 {
		o.word("ends_at", quota.TimeText(storeUS+s.ResetAfter.Microseconds()))
	}
	if regions == nil {
		return
	}
	o.name("regions")
	*o = append(*o, '[')
	for i, r := range regions {
		if i > 0 {
			*o = append(*o, ',')
		}
		*o = append(*o, '{')
		o.text("region", r.Region)
		o.Number("used", r.Used)
		o.Number("held", r.Held)
		*o = append(*o, '}')
	}
	*o = append(*o, ']')
}

// headline appends the limit that sums up the decision, and its waits.
func (o *Object) headline(d *quota.Decision, asked bool) {
	var reset time.Duration
	if head := d.Headline(); head >= 0 {
		s := &d.Limits[head]
		reset = s.ResetAfter
		o.text("name", s.Limit.Name)
		o.Number("limit", s.Limit.Units)
		o.Number("remaining", max(0, s.Remaining))
	}
	retry := d.RetryAfter()
	if d.TurnedAway() {
		retry = max(retry, time.Second)
	}
	if asked && d.Reason != quota.ReasonSuspended { // when, nobody knows
		o.Number("retry_after_ms", ceil(retry, time.Millisecond))
	}
	o.Number("reset_after_ms", ceil(reset, time.Millisecond))
}

// Refusal appends what a gateway's client gets of a decision: its id and the limits that refused.
func (o *Object) Refusal(d *quota.Decision) {
	o.id(d.ID)
	o.violated(d)
}

// violated appends the limits that refused, as the header fields name them. The draft calls limits policies.
func (o *Object) violated(d *quota.Decision) {
	o.name("violated-policies")
	*o = append(*o, '[')
	for i, name := range d.Violated() {
		if i > 0 {
			*o = append(*o, ',')
		}
		*o, _ = jsontext.AppendQuote(*o, d.Policy+"."+name)
	}
	*o = append(*o, ']')
}
