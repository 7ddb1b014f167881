package answer

import (
	"strconv"
	"time"

	"github.com/regiond/regiond/quota"
)

// Names of header fields, spelled as in the drafts: http.Header.Set would send "Ratelimit".
const (
	fieldPolicy     = "RateLimit-Policy"
	fieldState      = "RateLimit"
	fieldLimit      = "RateLimit-Limit"
	fieldRemaining  = "RateLimit-Remaining"
	fieldReset      = "RateLimit-Reset"
	fieldXLimit     = "X-RateLimit-Limit"
	fieldXRemaining = "X-RateLimit-Remaining"
	fieldXReset     = "X-RateLimit-Reset"

	// RetryAfter is when to come back, in seconds.
	RetryAfter = "Retry-After"
	// IDHeader has the id of the decision.
	IDHeader = "X-Regiond-Decision-Id"
	// LimitHeader names the limit that refused. It is absent where none did: a check was turned away
	// undecided.
	LimitHeader = "X-Regiond-Limit"
)

// maxFieldInteger is the largest Integer of a structured field, 15 digits.
const maxFieldInteger = 999_999_999_999_999

// jitterShare is the part by which a wait in a header field may be lengthened, so
// that clients which were denied together do not return together.
const jitterShare = 0.1

// Fields are the header fields of an answer, by names as they are sent.
type Fields []Field

// Field is one of them.
type Field struct{ Name, Value string }

// Set replaces a field, or adds it.
func (fs *Fields) Set(name, value string) {
	for i := range *fs {
		if (*fs)[i].Name == name {
			(*fs)[i].Value = value
			return
		}
	}
	*fs = append(*fs, Field{name, value})
}

// Input is what header fields depend on, besides the decision.
type Input struct {
	Headers quota.Headers
	Jitter  float64 // [0,1), one draw for all fields of an answer
	NowUS   int64   // the host's clock, for quota.ResetEpoch without the store's
	Denied  bool    // whether the answer is a refusal
}

// RateLimit adds the id of a decision and its rate limit fields: of these none but Retry-After for
// a check that was shed, since what is left is unknown.
func (fs *Fields) RateLimit(d *quota.Decision, in Input) {
	head := d.Headline()
	if in.Denied && d.Reason != quota.ReasonSuspended { // of which no end is known
		retry := ceil(d.RetryAfter(), time.Second)
		if head >= 0 {
			retry = waitSeconds(&d.Limits[head], d.RetryAfter(), in.Jitter)
		}
		fs.Set(RetryAfter, strconv.FormatInt(max(1, retry), 10))
	}
	if id := d.ID.String(); id != "" {
		fs.Set(IDHeader, id)
	}
	if head < 0 || in.Headers.Format == quota.HeadersOff {
		return
	}
	s := &d.Limits[head]
	reset := waitSeconds(s, wait(s), in.Jitter)
	switch in.Headers.Format {
	case quota.Triplet:
		fs.triplet([3]string{fieldLimit, fieldRemaining, fieldReset}, s, reset)
	case quota.XRateLimit:
		if in.Headers.XReset == quota.ResetEpoch {
			reset += epochSeconds(d, in.NowUS)
		}
		fs.triplet([3]string{fieldXLimit, fieldXRemaining, fieldXReset}, s, reset)
	case quota.OpenAI, quota.Anthropic:
		fs.provider(d, in)
	default:
		fs.draft11(d, in.Jitter)
	}
}

func (fs *Fields) triplet(names [3]string, s *quota.LimitState, reset int64) {
	for i, n := range []int64{s.Limit.Units, s.Remaining, reset} {
		fs.Set(names[i], string(appendInteger(nil, n)))
	}
}

// draft11 adds two lists with an item for each limit. Names of policies and limits have no character
// that a structured string would have to escape.
func (fs *Fields) draft11(d *quota.Decision, jitter float64) {
	policies, states := make([]byte, 0, 128), make([]byte, 0, 128)
	for i := range d.Limits {
		s := &d.Limits[i]
		policies, states = appendName(policies, d.Policy, s.Limit.Name), appendName(states, d.Policy, s.Limit.Name)
		policies = appendInteger(append(policies, ";q="...), s.Limit.Units)
		if s.Limit.Algorithm == quota.Concurrent {
			policies = append(policies, `;qu="concurrent-requests"`...)
		} else if w := windowSeconds(s.Limit.Window); w > 0 && s.Limit.Calendar == nil {
			policies = appendInteger(append(policies, ";w="...), w)
		}
		states = appendInteger(append(states, ";r="...), s.Remaining)
		if s.Reason != quota.ReasonSuspended {
			states = appendInteger(append(states, ";t="...), waitSeconds(s, wait(s), jitter))
		}
	}
	fs.Set(fieldPolicy, string(policies))
	fs.Set(fieldState, string(states))
}

// appendName begins an item of a list.
func appendName(b []byte, policy, limit string) []byte {
	if len(b) > 0 {
		b = append(b, ", "...)
	}
	b = append(append(append(b, '"'), policy...), '.')
	return append(append(b, limit...), '"')
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
	if s.Reason == quota.ReasonSuspended { // fields that need a number get a long one
		return s.Limit.Window
	}
	if s.Denied {
		return max(s.RetryAfter, 1) // the seconds of a refusal are never 0
	}
	return s.ResetAfter
}

// waitSeconds rounds a wait for a limit up and then lengthens it by at most jitterShare,
// in whole seconds: never below the exact wait, and not beyond a second more than the
// window, after which nothing of a limit is used. Waits below ten seconds stay as they are, and so does the beginning of the next
// period of a calendar.
func waitSeconds(s *quota.LimitState, d time.Duration, jitter float64) int64 {
	exact := ceil(d, time.Second)
	if s.Limit.Calendar != nil {
		return exact
	}
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
