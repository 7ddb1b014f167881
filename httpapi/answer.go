package httpapi

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/regiond/regiond/quota"
)

// appendDecision appends the members of an answer, without the braces, in the
// order of openapi.yaml. A check that was shed lists no limits: none was read.
func appendDecision(b []byte, d *quota.Decision) []byte {
	b = append(b, `"allowed":`...)
	b = strconv.AppendBool(b, d.Allowed)
	b = append(b, `,"policy":`...)
	b = appendText(b, d.Policy)
	b = appendHeadline(b, d)
	b = appendName(b, "basis", d.Basis.String())
	b = appendName(b, "mode", d.Mode.String())
	if d.Reason != quota.ReasonNone {
		b = appendName(b, "reason", d.Reason.String())
	}
	b = appendName(b, "enforcement", d.Enforcement.String())
	if d.WouldDeny {
		b = append(b, `,"would_deny":true`...)
	}
	if !d.Allowed || d.WouldDeny {
		b = append(b, `,"violated":`...)
		b = appendViolated(b, d, "")
	}
	b = append(b, `,"limits":[`...)
	for i := range d.Limits {
		s := &d.Limits[i]
		if i > 0 {
			b = append(b, ',')
		}
		b = append(b, `{"name":`...)
		b = appendText(b, s.Limit.Name)
		b = appendNumber(b, "limit", s.Limit.Units)
		b = appendNumber(b, "window_ms", ceil(s.Limit.Window, time.Millisecond))
		b = appendNumber(b, "remaining", max(0, s.Remaining))
		b = appendName(b, "scope", s.Limit.Scope.String())
		b = appendNumber(b, "ceiling", s.Ceiling)
		b = append(b, '}')
	}
	b = append(b, ']')
	if d.Explanation != nil {
		b = append(b, `,"explain":`...)
		b = appendValue(b, d.Explanation)
	}
	return b
}

// appendHeadline appends the limit that sums up the decision, and its waits.
func appendHeadline(b []byte, d *quota.Decision) []byte {
	var reset time.Duration
	if head := d.Headline(); head >= 0 {
		s := &d.Limits[head]
		reset = s.ResetAfter
		b = append(b, `,"name":`...)
		b = appendText(b, s.Limit.Name)
		b = appendNumber(b, "limit", s.Limit.Units)
		b = appendNumber(b, "remaining", max(0, s.Remaining))
	}
	retry := d.RetryAfter()
	if d.TurnedAway() {
		retry = max(retry, time.Second)
	}
	b = appendNumber(b, "retry_after_ms", ceil(retry, time.Millisecond))
	return appendNumber(b, "reset_after_ms", ceil(reset, time.Millisecond))
}

// appendViolated appends the names of the limits that refused, each after a prefix.
func appendViolated(b []byte, d *quota.Decision, prefix string) []byte {
	b = append(b, '[')
	for i, name := range d.Violated() {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(b, '"')
		b = append(b, prefix...)
		b = append(b, name...)
		b = append(b, '"')
	}
	return append(b, ']')
}

// denial returns the problem of a denied decision. Its detail is for the
// customer, without ceilings or peers. buf is scratch.
func denial(d *quota.Decision, buf []byte) problem {
	if d.TurnedAway() {
		detail := "Usage cannot be counted at the moment, and this policy then refuses. Retry later."
		if d.Basis == quota.BasisShed {
			detail = "More requests arrived than could be decided in time, and this one was turned away. Nothing was charged; send it again after a second or more."
		}
		return problem{kind: kindReduced, detail: detail}
	}
	head := d.Headline()
	if head < 0 {
		return problem{kind: kindQuota}
	}
	s := &d.Limits[head]
	detail := fmt.Appendf(buf[:0], "Limit %s of policy %s is %d per %s; this request needs %d and fits in %d ms.",
		s.Limit.Name, d.Policy, s.Limit.Units, windowText(s.Limit.Window), d.Cost, ceil(s.RetryAfter, time.Millisecond))
	return problem{kind: kindQuota, detail: string(detail)}
}

// appendDenial appends the members of a denied decision's problem. The draft
// calls limits policies, so violated-policies has the names that the header
// fields use.
func appendDenial(b []byte, d *quota.Decision, p *problem) []byte {
	b = p.appendMembers(b)
	b = append(b, `,"violated-policies":`...)
	return appendViolated(b, d, d.Policy+".")
}

// windowText is a window as in topology.yaml: 1m, not 1m0s.
func windowText(w time.Duration) string {
	return strings.ReplaceAll(strings.ReplaceAll(w.String(), "m0s", "m"), "h0m", "h")
}

func appendNumber(b []byte, name string, n int64) []byte {
	b = append(b, ',', '"')
	b = append(b, name...)
	b = append(b, '"', ':')
	return strconv.AppendInt(b, n, 10)
}

// appendName appends a member whose value needs no escaping.
func appendName(b []byte, name, value string) []byte {
	b = append(b, ',', '"')
	b = append(b, name...)
	b = append(b, '"', ':', '"')
	b = append(b, value...)
	return append(b, '"')
}

// appendText appends a JSON string. The ignored error is invalid UTF-8, which
// has become U+FFFD in the result.
func appendText(b []byte, s string) []byte {
	quoted, _ := jsontext.AppendQuote(b, s)
	return quoted
}

// appendValue appends a rare value as JSON, and null for what has none.
func appendValue(b []byte, v any) []byte {
	var text bytes.Buffer
	e := json.NewEncoder(&text)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return append(b, "null"...)
	}
	return append(b, bytes.TrimSuffix(text.Bytes(), []byte("\n"))...)
}
