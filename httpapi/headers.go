package httpapi

import (
	"strconv"
	"time"

	"github.com/regiond/regiond/quota"
)

// Names of the header fields, spelled as in the drafts: http.Header.Set would
// send "Ratelimit".
const (
	fieldPolicy     = "RateLimit-Policy"
	fieldState      = "RateLimit"
	fieldLimit      = "RateLimit-Limit"
	fieldRemaining  = "RateLimit-Remaining"
	fieldReset      = "RateLimit-Reset"
	fieldXLimit     = "X-RateLimit-Limit"
	fieldXRemaining = "X-RateLimit-Remaining"
	fieldXReset     = "X-RateLimit-Reset"
	fieldRetryAfter = "Retry-After"
)

// IDHeader has the id of the decision.
const IDHeader = "X-Regiond-Decision-Id"

// LimitHeader names the limit that refused. It is absent where none did: a check was turned away
// undecided.
const LimitHeader = "X-Regiond-Limit"

// maxFieldInteger is the largest Integer of a structured field, 15 digits.
const maxFieldInteger = 999_999_999_999_999

// jitterShare is the part by which a wait in a header field may be lengthened, so
// that clients which were denied together do not return together.
const jitterShare = 0.1

// fieldInput is what header fields depend on, besides the decision.
type fieldInput struct {
	headers quota.Headers
	jitter  float64 // [0,1), one draw for all fields of an answer
	nowUS   int64   // the host's clock, for ResetEpoch without the store's
	denied  bool    // whether the answer is a refusal
}

func (c *call) fieldInput(denied bool) fieldInput {
	return fieldInput{headers: c.settings.Headers, jitter: c.Jitter(), nowUS: c.start.UnixMicro(), denied: denied}
}

// RateLimitFields calls add with the rate limit fields of a decision, as an answer over HTTP has them. denied is whether the answer
// is a refusal, jitter in [0,1) lengthens waits, and nowUS is the host's clock.
func RateLimitFields(d *quota.Decision, h quota.Headers, denied bool, jitter float64, nowUS int64, add func(name, value string)) {
	var fs fields
	setFields(&fs, d, fieldInput{headers: h, jitter: jitter, nowUS: nowUS, denied: denied}, nil)
	for _, f := range fs {
		add(f.name, f.value)
	}
}

// setFields puts the id of a decision and its rate limit fields into h: of these none but
// Retry-After for a check that was shed, since what is left is unknown. buf is scratch and is
// returned for reuse.
func setFields(h *fields, d *quota.Decision, in fieldInput, buf []byte) []byte {
	head := d.Headline()
	if in.denied {
		retry := ceil(d.RetryAfter(), time.Second)
		if head >= 0 {
			retry = waitSeconds(&d.Limits[head], d.RetryAfter(), in.jitter)
		}
		h.set(fieldRetryAfter, strconv.FormatInt(max(1, retry), 10))
	}
	buf = d.ID.Append(buf[:0])
	if head < 0 || in.headers.Format == quota.HeadersOff {
		h.setID(string(buf))
		return buf
	}
	s := &d.Limits[head]
	reset := waitSeconds(s, wait(s), in.jitter)
	switch in.headers.Format {
	case quota.Triplet:
		return setTriplet(h, [3]string{fieldLimit, fieldRemaining, fieldReset}, s, reset, buf)
	case quota.XRateLimit:
		if in.headers.XReset == quota.ResetEpoch {
			reset += epochSeconds(d, in.nowUS)
		}
		return setTriplet(h, [3]string{fieldXLimit, fieldXRemaining, fieldXReset}, s, reset, buf)
	default:
		return setDraft11(h, d, in.jitter, buf)
	}
}

func (fs *fields) setID(id string) {
	if id != "" {
		fs.set(IDHeader, id)
	}
}

// setDraft11 writes both lists into one string behind the id, so that they cost one
// allocation however many limits there are.
func setDraft11(h *fields, d *quota.Decision, jitter float64, buf []byte) []byte {
	id := len(buf)
	for i := range d.Limits {
		l := d.Limits[i].Limit
		buf = appendMember(buf, i, d.Policy, l.Name)
		buf = append(buf, ";q="...)
		buf = appendInteger(buf, l.Units)
		if w := windowSeconds(l.Window); w > 0 {
			buf = append(buf, ";w="...)
			buf = appendInteger(buf, w)
		}
	}
	cut := len(buf)
	for i := range d.Limits {
		s := &d.Limits[i]
		buf = appendMember(buf, i, d.Policy, s.Limit.Name)
		buf = append(buf, ";r="...)
		buf = appendInteger(buf, s.Remaining)
		buf = append(buf, ";t="...)
		buf = appendInteger(buf, waitSeconds(s, wait(s), jitter))
	}
	all := string(buf)
	h.setID(all[:id])
	h.set(fieldPolicy, all[id:cut])
	h.set(fieldState, all[cut:])
	return buf
}

func setTriplet(h *fields, names [3]string, s *quota.LimitState, reset int64, buf []byte) []byte {
	id := len(buf)
	buf = appendInteger(buf, s.Limit.Units)
	a := len(buf)
	buf = appendInteger(buf, s.Remaining)
	b := len(buf)
	buf = appendInteger(buf, reset)
	all := string(buf)
	h.setID(all[:id])
	h.set(names[0], all[id:a])
	h.set(names[1], all[a:b])
	h.set(names[2], all[b:])
	return buf
}

// appendMember begins one item of a list: a quoted name. Names of policies and
// limits have no character that a structured string would have to escape.
func appendMember(b []byte, i int, policy, limit string) []byte {
	if i > 0 {
		b = append(b, ", "...)
	}
	b = append(b, '"')
	b = append(b, policy...)
	b = append(b, '.')
	b = append(b, limit...)
	return append(b, '"')
}

func appendInteger(b []byte, n int64) []byte {
	return strconv.AppendInt(b, min(max(n, 0), maxFieldInteger), 10)
}

// windowSeconds is the parameter w: 0, which leaves it out, below a second;
// otherwise rounded up, so that q/w never promises a higher rate.
func windowSeconds(w time.Duration) int64 {
	if w < time.Second {
		return 0
	}
	return ceil(w, time.Second)
}

// wait is what t counts down: until this cost fits for a limit that refused,
// otherwise until everything is free again.
func wait(s *quota.LimitState) time.Duration {
	if s.Denied {
		return max(s.RetryAfter, 1) // the seconds of a refusal are never 0
	}
	return s.ResetAfter
}

// waitSeconds rounds a wait for a limit up and then lengthens it by at most jitterShare,
// in whole seconds: never below the exact wait, and not beyond a second more than the
// window, after which nothing of a limit is used. Waits below ten seconds stay as they are.
func waitSeconds(s *quota.LimitState, d time.Duration, jitter float64) int64 {
	exact := ceil(d, time.Second)
	return max(exact, min(exact+int64(float64(exact)*jitterShare*jitter), ceil(s.Limit.Window, time.Second)+1))
}

// epochSeconds is the region's clock in seconds, rounded up.
func epochSeconds(d *quota.Decision, nowUS int64) int64 {
	us := d.StoreUS
	if us == 0 {
		us = nowUS
	}
	return ceil(time.Duration(us)*time.Microsecond, time.Second)
}

// ceil divides rounding up; a negative d is 0.
func ceil(d, unit time.Duration) int64 {
	if d <= 0 {
		return 0
	}
	return int64((d-1)/unit) + 1
}
