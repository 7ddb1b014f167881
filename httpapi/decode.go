package httpapi

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/regiond/regiond/quota"
)

// Bounds of what a caller may send.
const (
	// MaxBody is the largest body, in bytes: a hundred checks of 650 bytes.
	MaxBody = 64 << 10
	// MaxChecks is the largest batch.
	MaxChecks = 100
	// MaxDimensions is the largest number of dimensions of one request.
	MaxDimensions = 16
)

// Rules that bodies and queries share.
const (
	emptyPolicy       = "must not be empty; leave it out for the tenant's own"
	tooManyDimensions = "may have at most 16 members, has more"
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
		Checks []jsontext.Value `json:"checks"`
	}
	text       string
	policy     text
	dimensions map[string]text
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
	return json.UnmarshalDecode(d, (*string)(t))
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
	err := json.UnmarshalDecode(d, (*map[string]text)(ds))
	if err == nil && len(*ds) > MaxDimensions {
		err = rule(tooManyDimensions)
	}
	return err
}

// UnmarshalJSONFrom implements json.UnmarshalerFrom.
func (c *cost) UnmarshalJSONFrom(d *jsontext.Decoder) error {
	sent, err := d.ReadValue()
	if err != nil {
		return err
	}
	n, ok := parseCost(string(sent))
	if !ok {
		return rule(costRule + ", is " + truncate(string(sent)))
	}
	*c = cost(n)
	return nil
}

// decodeCheck reads a check. What is wrong with it has pointers that begin with base.
func decodeCheck(body []byte, base string) (quota.Request, []quota.FieldError) {
	c := check{Cost: 1}
	if wrong := decode(body, &c, "tenant, policy, dimensions, cost"); wrong != nil {
		wrong[0].Pointer = base + wrong[0].Pointer
		return quota.Request{}, wrong
	}
	r := quota.Request{Tenant: string(c.Tenant), Policy: string(c.Policy), Cost: int64(c.Cost)}
	if len(c.Dimensions) > 0 {
		r.Dimensions = make(quota.Dimensions, 0, len(c.Dimensions)+1)
		for name, value := range c.Dimensions {
			r.Dimensions = append(r.Dimensions, quota.Dimension{Name: name, Value: string(value)})
		}
		_, _ = r.Dimensions.Sort() // the names differ
	}
	return r, nil
}

// item is one check of a batch: a request, or what is wrong with it.
type item struct {
	request quota.Request
	errs    []quota.FieldError
	foreign bool // its tenant is not one that the caller may name
}

// decodeBatch reads a body of checks. It returns what is wrong with the body; what is wrong with one
// check is in its item.
func decodeBatch(body []byte) ([]item, []quota.FieldError) {
	var b batch
	if wrong := decode(body, &b, "checks"); wrong != nil {
		return nil, wrong
	}
	if n := len(b.Checks); n == 0 || n > MaxChecks {
		return nil, []quota.FieldError{{Pointer: "/checks", Detail: fmt.Sprintf("must have 1 to %d checks, has %d", MaxChecks, n)}}
	}
	items := make([]item, len(b.Checks))
	for i := range items {
		items[i].request, items[i].errs = decodeCheck(b.Checks[i], "/checks/"+strconv.Itoa(i))
	}
	return items, nil
}

// decode reads a body strictly, and returns what it finds wrong first; members are the names that the object may have.
func decode(body []byte, into any, members string) []quota.FieldError {
	err := json.Unmarshal(body, into, json.RejectUnknownMembers(true))
	var syntax *jsontext.SyntacticError
	var form *json.SemanticError
	var broken rule
	switch {
	case err == nil:
		return nil
	case len(bytes.TrimSpace(body)) == 0:
		return []quota.FieldError{{Detail: "the body is empty, it must hold a JSON object"}}
	case errors.As(err, &syntax) && errors.Is(err, jsontext.ErrDuplicateName):
		return []quota.FieldError{{Pointer: truncate(string(syntax.JSONPointer)), Detail: "is duplicated"}}
	case errors.As(err, &syntax):
		return []quota.FieldError{{
			Pointer: truncate(string(syntax.JSONPointer)),
			Detail:  fmt.Sprintf("is not JSON at byte %d: %s", syntax.ByteOffset, truncate(syntax.Err.Error())),
		}}
	case !errors.As(err, &form):
		return []quota.FieldError{{Detail: truncate(err.Error())}}
	}
	e := quota.FieldError{Pointer: truncate(string(form.JSONPointer))}
	switch {
	case errors.As(err, &broken):
		e.Detail = string(broken)
	case errors.Is(err, json.ErrUnknownName):
		e.Detail = "is not a member here; there are: " + members
	case e.Pointer == "":
		e.Detail = "must be an object with the members " + members + ", is " + kindName(form.JSONKind)
	default: // the only member that has a kind and no type of its own
		e.Detail = "must be an array of 1 to 100 checks, is " + kindName(form.JSONKind)
	}
	return []quota.FieldError{e}
}

// parseCost accepts the digits of 1…MaxUnits and nothing else: no sign, no
// fraction, no exponent, no leading zero. 5.0 and 5e0 are refused too, since a
// client that writes them computes with floats and will one day send 4.9999.
func parseCost(s string) (int64, bool) {
	n, err := strconv.ParseInt(s, 10, 64)
	return n, err == nil && s[0] != '+' && s[0] != '0' && n >= 1 && n <= quota.MaxUnits
}

// merge adds the errors at pointers about which nothing is known yet: a field of the wrong type is
// not also empty.
func merge(own, others []quota.FieldError) []quota.FieldError {
	for _, m := range others {
		if !slices.ContainsFunc(own, func(o quota.FieldError) bool { return o.Pointer == m.Pointer }) {
			own = append(own, m)
		}
	}
	return own
}

// escapeToken makes a reference token of a JSON pointer (RFC 6901), truncated
// when it is too long to be a mistyped name.
func escapeToken(name string) string {
	return strings.ReplaceAll(strings.ReplaceAll(truncate(name), "~", "~0"), "/", "~1")
}

// truncate keeps a message about something huge small.
func truncate(s string) string { return clip(s, 80) }

// clip keeps the first bytes of a text.
func clip(s string, most int) string {
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most], "") + "…"
}

func kindName(k jsontext.Kind) string {
	names := map[jsontext.Kind]string{
		'n': "null", 't': "a boolean", 'f': "a boolean", '"': "a string", '0': "a number", '[': "an array", '{': "an object",
	}
	return names[k]
}
