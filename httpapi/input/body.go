// Package input reads what callers of httpapi send, strictly: bodies, queries and keys. An unknown,
// misspelt or repeated member or parameter is refused rather than ignored.
//
//	body.go   checks, reserves, settles and extends as JSON
//	batch.go  many of them
//	query.go  parameters
//
// What breaks no rule of form is the limiter's to validate. Errors point to where a field is in a body.
package input

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/regiond/regiond/quota"
)

// Bounds of what a caller may send.
const (
	// MaxBatch is how many elements the largest batch has.
	MaxBatch = 100
	// MaxDimensions is the largest number of dimensions of one request.
	MaxDimensions = 16
)

// Rules that bodies and queries share.
const (
	emptyPolicy       = "must not be empty; leave it out for the tenant's own"
	tooManyDimensions = "may have at most 16 members, has more"
	duplicated        = "is duplicated"
	amountRule        = "must be a whole number between 0 and 1099511627776 in plain digits"
	ttlRule           = "must be a whole number of milliseconds between 1 and 1099511627776 in plain digits"
	reservationRule   = "must be the id of a reservation"
	costRule          = "must be a whole number between 1 and 1099511627776 in plain digits"
)

// Bodies as they are sent.
type (
	subject struct {
		Tenant     text       `json:"tenant"`
		Policy     policy     `json:"policy"`
		Dimensions dimensions `json:"dimensions"`
	}
	check struct {
		subject
		Cost cost `json:"cost"`
	}
	reserve struct {
		subject
		Amount amount `json:"amount"`
		TTL    ttl    `json:"ttl_ms"`
	}
	settle struct {
		Reservation text   `json:"reservation"`
		Actual      amount `json:"actual"`
	}
	extend struct {
		Reservation text `json:"reservation"`
		TTL         ttl  `json:"ttl_ms"`
	}
	text       string
	policy     text
	dimensions quota.Dimensions
	cost       int64
	amount     int64
	ttl        int64
)

// absent is an amount that has to be sent and was not.
const absent = -1

// rule is an error of a value: the rule that it breaks.
type rule string

// Error implements error.
func (r rule) Error() string { return string(r) }

// mustBe returns an error for a value of another kind, also for null. What is not JSON has none here:
// reading it will fail.
func mustBe(d *jsontext.Decoder, kind jsontext.Kind, wanted string) error {
	if got := d.PeekKind(); got != kind && got != jsontext.KindInvalid {
		return rule("must be " + wanted + ", is " + kindName(got))
	}
	return nil
}

// UnmarshalJSONFrom implements json.UnmarshalerFrom.
func (t *text) UnmarshalJSONFrom(d *jsontext.Decoder) error {
	if err := mustBe(d, '"', "a string"); err != nil {
		return err
	}
	sent, err := d.ReadToken()
	if err != nil {
		return err
	}
	*t = text(sent.String())
	return nil
}

// UnmarshalJSONFrom implements json.UnmarshalerFrom.
func (p *policy) UnmarshalJSONFrom(d *jsontext.Decoder) error {
	err := (*text)(p).UnmarshalJSONFrom(d)
	if err == nil && *p == "" {
		err = rule(emptyPolicy)
	}
	return err
}

// UnmarshalJSONFrom implements json.UnmarshalerFrom.
func (ds *dimensions) UnmarshalJSONFrom(d *jsontext.Decoder) error {
	if err := mustBe(d, '{', "an object of strings"); err != nil {
		return err
	}
	if _, err := d.ReadToken(); err != nil {
		return err
	}
	for d.PeekKind() != '}' {
		var name, value text
		if err := name.UnmarshalJSONFrom(d); err != nil {
			return err
		}
		if err := value.UnmarshalJSONFrom(d); err != nil {
			return err
		}
		if len(*ds) == MaxDimensions {
			return rule(tooManyDimensions)
		}
		*ds = append(*ds, quota.Dimension{Name: string(name), Value: string(value)})
	}
	_, err := d.ReadToken()
	return err
}

// UnmarshalJSONFrom implements json.UnmarshalerFrom.
func (c *cost) UnmarshalJSONFrom(d *jsontext.Decoder) error {
	return readNumber(d, (*int64)(c), ParseCost, costRule)
}

// UnmarshalJSONFrom implements json.UnmarshalerFrom.
func (a *amount) UnmarshalJSONFrom(d *jsontext.Decoder) error {
	return readNumber(d, (*int64)(a), parseAmount, amountRule)
}

// UnmarshalJSONFrom implements json.UnmarshalerFrom.
func (t *ttl) UnmarshalJSONFrom(d *jsontext.Decoder) error {
	return readNumber(d, (*int64)(t), ParseCost, ttlRule)
}

func readNumber(d *jsontext.Decoder, into *int64, parse func(string) (int64, bool), broken string) error {
	if kind := d.PeekKind(); kind == '{' || kind == '[' { // which may be long to read
		return rule(broken + ", is " + kindName(kind))
	}
	sent, err := d.ReadValue()
	if err != nil {
		return err
	}
	n, ok := parse(string(sent))
	if !ok {
		return rule(broken + ", is " + quota.Clip(string(sent)))
	}
	*into = n
	return nil
}

// Item is what a caller asks for, a Request or a Claim; or what is wrong with it.
type Item struct {
	Request quota.Request
	Claim   quota.Claim
	Errs    []quota.FieldError
}

// Check reads a check. What is wrong with it has pointers that begin with base.
func Check(body []byte, base string) Item {
	c := check{Cost: 1}
	return read(body, base, &c, "tenant, policy, dimensions, cost", func(it *Item) (missing, wanted string) {
		it.Request = c.request(quota.Request{Cost: int64(c.Cost)})
		return "", ""
	})
}

// Reserve reads a reserve, as Check does a check.
func Reserve(body []byte, base string) Item {
	v := reserve{Amount: absent}
	return read(body, base, &v, "tenant, policy, dimensions, amount, ttl_ms", func(it *Item) (missing, wanted string) {
		if v.Amount == absent {
			return "/amount", amountRule
		}
		it.Request = v.request(quota.Request{Reserve: true, Cost: int64(v.Amount), TTL: v.TTL.duration()})
		return "", ""
	})
}

// Settle reads a settle, as Check does a check.
func Settle(body []byte, base string) Item {
	v := settle{Actual: absent}
	return read(body, base, &v, "reservation, actual", func(it *Item) (missing, wanted string) {
		it.Claim = quota.Claim{Reservation: string(v.Reservation), Actual: int64(v.Actual)}
		switch {
		case v.Actual == absent:
			return "/actual", amountRule
		case v.Reservation == "":
			return "/reservation", reservationRule
		}
		return "", ""
	})
}

// Extend reads an extend, as Check does a check.
func Extend(body []byte, base string) Item {
	var v extend
	return read(body, base, &v, "reservation, ttl_ms", func(it *Item) (missing, wanted string) {
		it.Claim = quota.Claim{Reservation: string(v.Reservation), TTL: v.TTL.duration()}
		switch {
		case v.TTL == 0:
			return "/ttl_ms", ttlRule
		case v.Reservation == "":
			return "/reservation", reservationRule
		}
		return "", ""
	})
}

// read decodes a body, and has take make an item of it, which returns what is missing.
func read(body []byte, base string, into any, members string, take func(*Item) (missing, wanted string)) (it Item) {
	if it.Errs = decode(body, into, members); it.Errs == nil {
		missing, wanted := take(&it)
		if missing == "" {
			return it
		}
		it.Errs = []quota.FieldError{{Pointer: missing, Detail: wanted + ", is missing"}}
	}
	it.Errs[0].Pointer = base + it.Errs[0].Pointer
	return it
}

// request adds what a check and a reserve are about.
func (s *subject) request(r quota.Request) quota.Request {
	r.Tenant, r.Policy, r.Dimensions = string(s.Tenant), string(s.Policy), quota.Dimensions(s.Dimensions)
	_, _ = r.Dimensions.Sort() // the names differ
	return r
}

// duration is at most as long as a time.Duration holds; policies allow far less.
func (t ttl) duration() time.Duration {
	return time.Duration(min(int64(t), math.MaxInt64/int64(time.Millisecond))) * time.Millisecond
}

// decode reads a body strictly, and returns what it finds wrong first; members are the names that the object may have.
func decode(body []byte, into any, members string, options ...json.Options) []quota.FieldError {
	if jsontext.Value(body).Kind() == 'n' { // which package json takes for an object without members
		return []quota.FieldError{noObject(members, 'n')}
	}
	if err := json.Unmarshal(body, into, append(options, json.RejectUnknownMembers(true))...); err != nil {
		return []quota.FieldError{mistake(err, body, members)}
	}
	return nil
}

func noObject(members string, kind jsontext.Kind) quota.FieldError {
	return quota.FieldError{Detail: "must be an object with the members " + members + ", is " + kindName(kind)}
}

// mistake is what reading a body has found.
func mistake(err error, body []byte, members string) quota.FieldError {
	var syntax *jsontext.SyntacticError
	var form *json.SemanticError
	var broken rule
	switch {
	case len(bytes.TrimSpace(body)) == 0:
		return quota.FieldError{Detail: "the body is empty, it must hold a JSON object"}
	case errors.As(err, &syntax) && errors.Is(err, jsontext.ErrDuplicateName):
		return quota.FieldError{Pointer: quota.Clip(string(syntax.JSONPointer)), Detail: duplicated}
	case errors.As(err, &syntax):
		return quota.FieldError{
			Pointer: quota.Clip(string(syntax.JSONPointer)),
			Detail:  fmt.Sprintf("is not JSON at byte %d: %s", syntax.ByteOffset, quota.Clip(syntax.Err.Error())),
		}
	case !errors.As(err, &form):
		return quota.FieldError{Detail: quota.Clip(err.Error())}
	}
	e := quota.FieldError{Pointer: quota.Clip(string(form.JSONPointer))}
	switch {
	case errors.As(err, &broken):
		e.Detail = string(broken)
		if broken == tooManyDimensions { // no matter which
			e.Pointer = "/dimensions"
		}
	case errors.Is(err, json.ErrUnknownName):
		e.Detail = "is not a member here; there are: " + members
	default: // all members have types of their own
		return noObject(members, form.JSONKind)
	}
	return e
}

func kindName(k jsontext.Kind) string {
	names := map[jsontext.Kind]string{
		'n': "null", 't': "a boolean", 'f': "a boolean", '"': "a string", '0': "a number", '[': "an array", '{': "an object",
	}
	return names[k]
}
