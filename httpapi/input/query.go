package input

import (
	"errors"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/regiond/regiond/quota"
)

// DefaultTopRows is how many rows GET /v1/top has unless it is asked for more.
const DefaultTopRows = 20

// maxParameters is more than any call has: policy, cost, explain and MaxDimensions.
const maxParameters = 32

// Query reads the query of a check. All calls take explain; usage calls also take
// the policy, cost and dimensions.
func Query(raw string, usage bool) (r quota.Request, errs []quota.FieldError) {
	r.Cost = 1
	errs = parameters(raw, func(name, value string) string { // dimensions are sorted with them
		dimension, isDimension := strings.CutPrefix(name, "dim.")
		switch {
		case name == "explain":
			r.Explain = value == "1"
			if value != "0" && value != "1" {
				return "must be 0 or 1"
			}
		case !usage:
			return "is not a parameter here; there is: explain"
		case name == "policy":
			if r.Policy = value; value == "" {
				return emptyPolicy
			}
		case name == "cost":
			n, ok := ParseCost(value)
			if !ok {
				return costRule + ", is " + quota.Clip(value)
			}
			r.Cost = n
		case isDimension:
			r.Dimensions = append(r.Dimensions, quota.Dimension{Name: dimension, Value: value})
		default:
			return "is not a parameter here; there are: policy, cost, explain, dim.<name>"
		}
		return ""
	})
	if len(r.Dimensions) > MaxDimensions {
		errs = append(errs, quota.FieldError{Pointer: "/dimensions", Detail: tooManyDimensions})
	}
	return r, errs
}

// Top reads the query of GET /v1/top.
func Top(raw string) (q quota.TopQuery, errs []quota.FieldError) {
	q.Window, q.Rows = quota.TopWindows[0], DefaultTopRows
	errs = parameters(raw, func(name, value string) string {
		var err error
		switch name {
		case "by":
			err = q.By.UnmarshalText([]byte(value))
		case "scope":
			err = q.Scope.UnmarshalText([]byte(value))
		case "policy":
			q.Policy, err = value, quota.ValidName(value)
		case "window":
			q.Window, err = time.ParseDuration(value)
			if err != nil || !slices.Contains(quota.TopWindows[:], q.Window) {
				return "must be 1m or 1h, is " + quota.Clip(value)
			}
		case "limit":
			q.Rows, err = strconv.Atoi(value)
			if err != nil || q.Rows < 1 || q.Rows > quota.MaxTopRows {
				return fmt.Sprintf("must be 1 to %d rows, is %s", quota.MaxTopRows, quota.Clip(value))
			}
		default:
			return "is not a parameter here; there are: by, policy, window, scope, limit"
		}
		if err != nil {
			return quota.Clip(err.Error())
		}
		return ""
	})
	return q, errs
}

// DefaultUsageRows is how many rows a page of GET /v1/usage has, unless it is asked for more.
const DefaultUsageRows = 1000

// Usage reads the query of GET /v1/usage.
func Usage(raw string) (q quota.UsageQuery, errs []quota.FieldError) {
	q.Rows = DefaultUsageRows
	errs = parameters(raw, func(name, value string) string {
		switch name {
		case "cursor":
			if q.Cursor = value; quota.ValidID(value) != nil {
				return "must be the next_cursor of an answer of this region"
			}
		case "policy":
			if err := quota.ValidName(value); err != nil {
				return err.Error()
			}
			q.Policy = value
		case "limit":
			rows, ok := ParseCost(value)
			if q.Rows = int(min(rows, quota.MaxUsageRows)); !ok || rows > quota.MaxUsageRows {
				return fmt.Sprintf("must be between 1 and %d rows, is %s", quota.MaxUsageRows, quota.Clip(value))
			}
		default:
			return "is not a parameter here; there are: cursor, policy, limit"
		}
		return ""
	})
	return q, errs
}

// parameters calls set for each parameter of a query, in the order of their names; it returns what is wrong with one.
func parameters(raw string, set func(name, value string) (wrong string)) (errs []quota.FieldError) {
	if raw == "" {
		return nil
	}
	if strings.Count(raw, "&") >= maxParameters {
		return []quota.FieldError{{Detail: fmt.Sprintf("the query has more than %d parameters", maxParameters)}}
	}
	values, err := url.ParseQuery(raw)
	if err != nil {
		return []quota.FieldError{{Detail: "the query is not well-formed: " + quota.Clip(err.Error())}}
	}
	for _, name := range slices.Sorted(maps.Keys(values)) {
		wrong := "is duplicated in the query"
		if len(values[name]) == 1 {
			wrong = set(name, values[name][0])
		}
		if wrong == "" {
			continue
		}
		pointer := quota.Under("", quota.Clip(name))
		if dimension, ok := strings.CutPrefix(name, "dim."); ok {
			pointer = quota.Under("/dimensions", quota.Clip(dimension))
		}
		errs = append(errs, quota.FieldError{Pointer: pointer, Detail: wrong})
	}
	return errs
}

// ParseCost accepts the digits of 1…MaxUnits and nothing else: no sign, no
// fraction, no exponent, no leading zero. 5.0 and 5e0 are refused too, since a
// client that writes them computes with floats and will one day send 4.9999.
func ParseCost(s string) (int64, bool) {
	n, err := strconv.ParseInt(s, 10, 64)
	return n, err == nil && s[0] != '+' && s[0] != '0' && n >= 1 && n <= quota.MaxUnits
}

// parseAmount is ParseCost for a number that may be 0.
func parseAmount(s string) (int64, bool) {
	if s == "0" {
		return 0, true
	}
	return ParseCost(s)
}

// IdempotencyKey returns the key of a request, "" when it has none. Quotes are
// part of the key where a client sends the structured string of the draft.
func IdempotencyKey(lines []string) (string, error) {
	switch {
	case len(lines) == 0:
		return "", nil
	case len(lines) > 1:
		return "", errors.New("header Idempotency-Key is duplicated")
	case len(lines[0]) > quota.MaxIdempotencyKey:
		return "", fmt.Errorf("header Idempotency-Key must have at most %d characters", quota.MaxIdempotencyKey)
	}
	if err := quota.ValidID(lines[0]); err != nil {
		return "", fmt.Errorf("header Idempotency-Key %w", err)
	}
	return lines[0], nil
}

// PathID decodes a path segment; the limiter validates the id in it.
func PathID(segment string) (string, error) {
	id, err := url.PathUnescape(segment)
	if err != nil {
		return "", errors.New("has a broken percent-escape")
	}
	return id, nil
}

// Merge adds the errors at pointers about which nothing is known yet: a field of the wrong type is
// not also empty.
func Merge(own, others []quota.FieldError) []quota.FieldError {
	for _, m := range others {
		if !slices.ContainsFunc(own, func(o quota.FieldError) bool { return o.Pointer == m.Pointer }) {
			own = append(own, m)
		}
	}
	return own
}
