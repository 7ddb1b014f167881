package httpapi

import (
	"bytes"
	"encoding/json"
	"strconv"
	"strings"
	"time"

	"github.com/regiond/regiond/quota"
)

// closedRetry is the advice of a fail-closed answer, which knows no better.
const closedRetry = time.Second

// appendDecision appends the members of an answer, without the braces, in the
// order in which openapi.yaml lists them.
func appendDecision(b []byte, d *quota.Decision) []byte {
	b = append(b, `"allowed":`...)
	b = strconv.AppendBool(b, d.Allowed)
	b = append(b, `,"policy":`...)
	b = appendText(b, d.Policy)
	b = appendHeadline(b, d)
	b = appendWord(b, "basis", d.Basis.String())
	b = appendWord(b, "mode", d.Mode.String())
	if d.Reason != quota.ReasonNone {
		b = appendWord(b, "reason", d.Reason.String())
	}
	b = appendWord(b, "enforcement", d.Enforcement.String())
	if d.WouldDeny {
		b = append(b, `,"would_deny":true`...)
	}
	if !d.Allowed || d.WouldDeny {
		b = append(b, `,"violated":[`...)
		b = appendViolated(b, d, "")
		b = append(b, ']')
	}
	b = append(b, `,"limits":[`...)
	for i := range d.Limits {
		if i > 0 {
			b = append(b, ',')
		}
		b = appendLimit(b, &d.Limits[i])
	}
	b = append(b, ']')
	if d.Explanation != nil {
		b = append(b, `,"explain":`...)
		b = appendValue(b, d.Explanation)
	}
	return b
}

func appendHeadline(b []byte, d *quota.Decision) []byte {
	var retry, reset time.Duration
	if head := d.Headline(); head >= 0 {
		s := &d.Limits[head]
		retry, reset = s.RetryAfter, s.ResetAfter
		b = append(b, `,"name":`...)
		b = appendText(b, s.Limit.Name)
		b = appendNumber(b, "limit", s.Limit.Units)
		b = appendNumber(b, "remaining", max(0, s.Remaining))
	}
	if closed(d) {
		retry = max(retry, closedRetry)
	}
	b = appendNumber(b, "retry_after_ms", ceil(retry, time.Millisecond))
	return appendNumber(b, "reset_after_ms", ceil(reset, time.Millisecond))
}

func appendLimit(b []byte, s *quota.LimitState) []byte {
	b = append(b, `{"name":`...)
	b = appendText(b, s.Limit.Name)
	b = appendNumber(b, "limit", s.Limit.Units)
	b = appendNumber(b, "window_ms", ceil(s.Limit.Window, time.Millisecond))
	b = appendNumber(b, "remaining", max(0, s.Remaining))
	b = appendWord(b, "scope", s.Limit.Scope.String())
	b = appendNumber(b, "ceiling", s.Ceiling)
	return append(b, '}')
}

// appendViolated appends the names of the limits that refused, with the policy
// before each when one is given.
func appendViolated(b []byte, d *quota.Decision, policy string) []byte {
	first := true
	for i := range d.Limits {
		if !d.Limits[i].Denied {
			continue
		}
		if !first {
			b = append(b, ',')
		}
		first = false
		b = append(b, '"')
		if policy != "" {
			b = append(b, policy...)
			b = append(b, '.')
		}
		b = append(b, d.Limits[i].Limit.Name...)
		b = append(b, '"')
	}
	return b
}

// appendRefusal appends the members that a problem document adds to a denied
// decision. The draft calls limits policies, so violated-policies has them
// under the names that the header fields use.
func appendRefusal(b []byte, d *quota.Decision, p *problem) []byte {
	b = p.appendMembers(b)
	b = append(b, `,"violated-policies":[`...)
	b = appendViolated(b, d, d.Policy)
	return append(b, ']')
}

// refusal makes the problem of a denied decision. Its detail tells a customer
// what to do, and nothing of ceilings or peers.
func refusal(d *quota.Decision, b []byte) problem {
	if closed(d) {
		return problem{kind: kindReduced, detail: "Usage cannot be counted at the moment, and this policy then refuses. Retry later."}
	}
	head := d.Headline()
	if head < 0 {
		return problem{kind: kindQuota}
	}
	s := &d.Limits[head]
	b = append(b[:0], "Limit "...)
	b = append(b, s.Limit.Name...)
	b = append(b, " of policy "...)
	b = append(b, d.Policy...)
	b = append(b, " is "...)
	b = strconv.AppendInt(b, s.Limit.Units, 10)
	b = append(b, " per "...)
	b = append(b, windowText(s.Limit.Window)...)
	b = append(b, "; this request needs "...)
	b = strconv.AppendInt(b, d.Cost, 10)
	b = append(b, " and fits in "...)
	b = strconv.AppendInt(b, ceil(s.RetryAfter, time.Millisecond), 10)
	b = append(b, " ms."...)
	return problem{kind: kindQuota, detail: string(b)}
}

// windowText is a window as topology.yaml would have it: 1m, where
// time.Duration says 1m0s.
func windowText(w time.Duration) string {
	text := w.String()
	if strings.HasSuffix(text, "m0s") {
		text = strings.TrimSuffix(text, "0s")
	}
	if strings.HasSuffix(text, "h0m") {
		text = strings.TrimSuffix(text, "0m")
	}
	return text
}

// closed reports whether a fail mode refused, rather than a limit.
func closed(d *quota.Decision) bool { return !d.Allowed && d.Basis == quota.BasisClosed }

func appendNumber(b []byte, name string, n int64) []byte {
	b = append(b, ',', '"')
	b = append(b, name...)
	b = append(b, '"', ':')
	return strconv.AppendInt(b, n, 10)
}

// appendWord appends a member whose value needs no escaping.
func appendWord(b []byte, name, value string) []byte {
	b = append(b, ',', '"')
	b = append(b, name...)
	b = append(b, '"', ':', '"')
	b = append(b, value...)
	return append(b, '"')
}

// appendValue appends what is not asked for often as JSON, and null for what
// has none.
func appendValue(b []byte, v any) []byte {
	var text bytes.Buffer
	e := json.NewEncoder(&text)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return append(b, "null"...)
	}
	return append(b, bytes.TrimSuffix(text.Bytes(), []byte("\n"))...)
}
