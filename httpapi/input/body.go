// Package input reads what callers of httpapi send, strictly: bodies, queries and keys. An unknown,
// misspelt or repeated member or parameter is refused rather than ignored.
//
//	body.go   checks as JSON
//	query.go  parameters
//
// What breaks no rule of form is the limiter's to validate. Errors point to where a field is in a body.
package input

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/regiond/regiond/quota"
)

// Bounds of what a caller may send.
const (
	// MaxChecks is the largest batch.
	MaxChecks = 100
	// MaxDimensions is the largest number of dimensions of one request.
	MaxDimensions = 16
)

// Rules that bodies and queries share.
const (
	emptyPolicy       = "must not be empty; leave it out for the tenant's own"
	tooManyDimensions = "may have at most 16 members, has more"
	duplicated        = "is duplicated"
	costRule          = "must be a whole number between 1 and 1099511627776 in plain digits"
)

// Bodies as they are sent.
type (
	check struct {
		Tenant     text       `json:"tenant"`
		Policy     policy     `json:"policy"`
		Dimensions dimensions `json:"dimensions"`
		Cost       cost       `json:"cost"`
	}
	batch struct {
		Checks checks `json:"checks"`
	}
	checks struct {
		first []span // MaxChecks at most
		n     int
		sent  bool
	}
	span       struct{ from, to int64 } // of a body
	text       string
	policy     text
	dimensions quota.Dimensions
	cost       int64
)

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
	if kind := d.PeekKind(); kind == '{' || kind == '[' { // which may be long to read
		return rule(costRule + ", is " + kindName(kind))
	}
	sent, err := d.ReadValue()
	if err != nil {
		return err
	}
	n, ok := ParseCost(string(sent))
	if !ok {
		return rule(costRule + ", is " + quota.Clip(string(sent)))
	}
	*c = cost(n)
	return nil
}

// UnmarshalJSONFrom implements json.UnmarshalerFrom. What is too much is counted, and takes no memory.
func (c *checks) UnmarshalJSONFrom(d *jsontext.Decoder) error {
	if c.sent {
		return rule(duplicated)
	}
	c.sent = true
	if err := mustBe(d, '[', "an array of 1 to 100 checks"); err != nil {
		return err
	}
	_, err := d.ReadToken()
	for ; err == nil && d.PeekKind() != ']'; c.n++ {
		if c.n >= MaxChecks {
			err = d.SkipValue()
			continue
		}
		var v jsontext.Value
		v, err = d.ReadValue()
		to := d.InputOffset()
		c.first = append(c.first, span{to - int64(len(v)), to})
	}
	if err == nil {
		_, err = d.ReadToken()
	}
	return err
}

// Check reads a check. What is wrong with it has pointers that begin with base.
func Check(body []byte, base string) (quota.Request, []quota.FieldError) {
	c := check{Cost: 1}
	if wrong := decode(body, &c, "tenant, policy, dimensions, cost"); wrong != nil {
		wrong[0].Pointer = base + wrong[0].Pointer
		return quota.Request{}, wrong
	}
	r := quota.Request{Tenant: string(c.Tenant), Policy: string(c.Policy), Cost: int64(c.Cost), Dimensions: quota.Dimensions(c.Dimensions)}
	_, _ = r.Dimensions.Sort() // the names differ
	return r, nil
}

// Item is one check of a batch: a request, or what is wrong with it.
type Item struct {
	Request quota.Request
	Errs    []quota.FieldError
}

// Batch reads a body of checks. It returns what is wrong with the body; what is wrong with one
// check is in its item.
func Batch(body []byte) ([]Item, []quota.FieldError) {
	var b batch
	// Check finds names that are there twice; here they would take memory.
	if wrong := decode(body, &b, "checks", jsontext.AllowDuplicateNames(true)); wrong != nil {
		return nil, wrong
	}
	if n := b.Checks.n; n == 0 || n > MaxChecks {
		return nil, []quota.FieldError{{Pointer: "/checks", Detail: fmt.Sprintf("must have 1 to %d checks, has %d", MaxChecks, n)}}
	}
	items := make([]Item, b.Checks.n)
	for i := range items {
		at := b.Checks.first[i]
		items[i].Request, items[i].Errs = Check(body[at.from:at.to], "/checks/"+strconv.Itoa(i))
	}
	return items, nil
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
