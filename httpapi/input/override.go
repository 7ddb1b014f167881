package input

import (
	"fmt"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/regiond/regiond/quota"
)

// override is a body as it is sent.
type override struct {
	Policy      policy        `json:"policy"`
	Enforcement *enforcement  `json:"enforcement"`
	Limits      overrideUnits `json:"limits"`
	ExpiresAt   moment        `json:"expires_at"`
	Reason      text          `json:"reason"`
}

type (
	enforcement   quota.Enforcement
	overrideUnits []quota.OverrideLimit
	moment        int64 // µs since 1970
)

// UnmarshalJSONFrom implements json.UnmarshalerFrom.
func (e *enforcement) UnmarshalJSONFrom(d *jsontext.Decoder) error {
	var word text
	if err := word.UnmarshalJSONFrom(d); err != nil {
		return err
	}
	if err := (*quota.Enforcement)(e).UnmarshalText([]byte(word)); err != nil {
		return rule(err.Error())
	}
	return nil
}

// UnmarshalJSONFrom implements json.UnmarshalerFrom.
func (us *overrideUnits) UnmarshalJSONFrom(d *jsontext.Decoder) error {
	if err := mustBe(d, '{', "an object of numbers"); err != nil {
		return err
	}
	if _, err := d.ReadToken(); err != nil {
		return err
	}
	for d.PeekKind() != '}' {
		var name text
		if err := name.UnmarshalJSONFrom(d); err != nil {
			return err
		}
		var units int64
		if err := readNumber(d, &units, parseAmount, amountRule); err != nil {
			return &json.SemanticError{JSONPointer: d.StackPointer(), Err: err}
		}
		if len(*us) == quota.MaxLimits {
			return rule(fmt.Sprintf("may have at most %d members, has more", quota.MaxLimits))
		}
		*us = append(*us, quota.OverrideLimit{Name: string(name), Units: units})
	}
	_, err := d.ReadToken()
	return err
}

// UnmarshalJSONFrom implements json.UnmarshalerFrom.
func (m *moment) UnmarshalJSONFrom(d *jsontext.Decoder) error {
	var word text
	if err := word.UnmarshalJSONFrom(d); err != nil {
		return err
	}
	t, err := time.Parse(time.RFC3339, string(word))
	if err != nil || t.Year() < 1971 || t.Year() > 2111 {
		return rule("must be a time such as 2026-12-01T00:00:00Z (RFC 3339), is " + quota.Clip(string(word)))
	}
	*m = moment(t.UnixMicro())
	return nil
}

// Override reads what a tenant's override is to be.
func Override(body []byte) (o quota.Override, wrong []quota.FieldError) {
	var v override
	if wrong = decode(body, &v, "policy, enforcement, limits, expires_at, reason"); wrong != nil {
		return o, wrong
	}
	o = quota.Override{Policy: string(v.Policy), Limits: v.Limits, ExpiresUS: int64(v.ExpiresAt), Reason: string(v.Reason)}
	if v.Enforcement != nil {
		o.Enforcement = (*quota.Enforcement)(v.Enforcement)
	}
	o.Sort()
	return o, nil
}

// Condition reads If-Match and If-None-Match of an edit.
func Condition(match, none []string) (version string, ifNone bool, wrong []quota.FieldError) {
	switch {
	case len(match) > 0 && len(none) > 0:
		return "", false, []quota.FieldError{{Pointer: "/If-None-Match", Detail: "comes with If-Match: send one of them"}}
	case len(none) > 1 || len(none) == 1 && none[0] != "*":
		return "", false, []quota.FieldError{{Pointer: "/If-None-Match", Detail: "must be *, which wants the tenant to have no override"}}
	case len(match) == 0:
		return "", len(none) == 1, nil
	}
	version, ok := strings.CutPrefix(match[0], `"`)
	version, ok2 := strings.CutSuffix(version, `"`)
	if len(match) > 1 || !ok || !ok2 || version == "" || strings.ContainsAny(version, `", `) {
		return "", false, []quota.FieldError{{Pointer: "/If-Match", Detail: "must be the ETag of one version, in quotes"}}
	}
	return version, false, nil
}

// DefaultOverrides is how many overrides a page of GET /v1/overrides has unless it is asked for another number, and MaxOverrides the
// most.
const (
	DefaultOverrides = 100
	MaxOverrides     = 1000
)

// Overrides reads the query of GET /v1/overrides.
func Overrides(raw string) (after string, n int, errs []quota.FieldError) {
	n = DefaultOverrides
	errs = parameters(raw, func(name, value string) string {
		switch name {
		case "cursor":
			if after = value; quota.ValidID(value) != nil {
				return "must be the next_cursor of an answer"
			}
		case "limit":
			units, ok := ParseCost(value)
			if n = int(min(units, MaxOverrides)); !ok || units > MaxOverrides {
				return fmt.Sprintf("must be between 1 and %d, is %s", MaxOverrides, quota.Clip(value))
			}
		default:
			return "is not a parameter here; there are: cursor, limit"
		}
		return ""
	})
	return after, n, errs
}
