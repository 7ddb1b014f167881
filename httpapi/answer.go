package httpapi

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/regiond/regiond/quota"
)

// appendDecision appends the members of an answer, without the braces, in the
// order of openapi.yaml. A check that was shed lists no limits: none was read.
func appendDecision(b []byte, d *quota.Decision) []byte {
	b = append(b, `"allowed":`...)
	b = strconv.AppendBool(b, d.Allowed)
	return appendLimits(b, d, true)
}

// appendReport appends the members of the answer to a report that was charged. It was
// not asked whether it may happen, and a wait for as much again is not known.
func appendReport(b []byte, d *quota.Decision) []byte {
	b = append(b, `"charged":`...)
	b = strconv.AppendInt(b, d.Cost, 10)
	b = append(b, `,"over":`...)
	b = strconv.AppendBool(b, slices.ContainsFunc(d.Limits, func(s quota.LimitState) bool { return s.Remaining <= 0 }))
	return appendLimits(b, d, false)
}

// appendLimits appends the policy and what is left of its limits; asked is set where the
// decision says whether a request may pass, and not for a report.
func appendLimits(b []byte, d *quota.Decision, asked bool) []byte {
	b = appendID(b, d.ID)
	b = append(b, `,"policy":`...)
	b = appendText(b, d.Policy)
	b = appendHeadline(b, d, asked)
	b = appendName(b, "basis", d.Basis.String())
	b = appendName(b, "mode", d.Mode.String())
	if d.Reason != quota.ReasonNone {
		b = appendName(b, "reason", d.Reason.String())
	}
	b = appendName(b, "enforcement", d.Enforcement.String())
	if d.WouldDeny {
		b = append(b, `,"would_deny":true`...)
	}
	if asked && (!d.Allowed || d.WouldDeny) {
		b = appendViolated(b, d)
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

func appendID(b []byte, id quota.DecisionID) []byte {
	b = append(b, `,"id":"`...)
	b = id.Append(b)
	return append(b, '"')
}

// appendHeadline appends the limit that sums up the decision, and its waits.
func appendHeadline(b []byte, d *quota.Decision, asked bool) []byte {
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
	if asked {
		b = appendNumber(b, "retry_after_ms", ceil(retry, time.Millisecond))
	}
	return appendNumber(b, "reset_after_ms", ceil(reset, time.Millisecond))
}

// appendViolated appends the limits that refused, as the header fields name them. The
// draft calls limits policies.
func appendViolated(b []byte, d *quota.Decision) []byte {
	b = append(b, `,"violated-policies":[`...)
	for i, name := range d.Violated() {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(b, '"')
		b = append(b, d.Policy...)
		b = append(b, '.')
		b = append(b, name...)
		b = append(b, '"')
	}
	return append(b, ']')
}

// nameDenier adds the field that names the limit which refused, if one did.
func (c *call) nameDenier(d *quota.Decision) {
	if s := d.DeniedBy(); s != nil {
		c.nameLimit(s.Limit.Name)
	}
}

func (c *call) nameLimit(name string) {
	if name != "" {
		c.fields.set(LimitHeader, name)
	}
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
		s.Limit.Name, d.Policy, s.Limit.Units, quota.WindowText(s.Limit.Window), d.Cost, ceil(s.RetryAfter, time.Millisecond))
	return problem{kind: kindQuota, detail: string(detail)}
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
