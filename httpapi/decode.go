package httpapi

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

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

	// maxErrors bounds the list of errors in one answer. After so many the rest of a
	// body is not read: what is wrong with it costs processor time and helps nobody.
	maxErrors = 32
)

// errTooMany ends the reading of a body with more than maxErrors errors or MaxChecks checks.
var errTooMany = errors.New("too many")

// Rules that bodies and queries share.
const (
	emptyPolicy       = "must not be empty; leave it out for the tenant's own"
	tooManyDimensions = "may have at most 16 members, has more"
	checksRule        = "must have 1 to 100 checks"
	costRule          = "must be a whole number between 1 and 1099511627776 in plain digits"
)

// decoder reads bodies strictly and lists every error, where a library stops at
// the first. It is reused; what it returns does not refer to it.
type decoder struct {
	json *jsontext.Decoder
	name []byte // of the member being read, unquoted
	base string // pointer of the check being read: "" or "/checks/3"
	errs []quota.FieldError
	bad  int // errors of the whole body, listed or not

	// The strings of one check are gathered here and become one string: one
	// allocation per check, and a limiter that keeps an id does not keep the body.
	text   []byte
	tenant span
	policy span
	dims   []dimension
	cost   int64
}

type (
	span      struct{ from, to int } // of decoder.text
	dimension struct{ name, value span }
)

func newDecoder() *decoder { return &decoder{json: jsontext.NewDecoder(&bytes.Buffer{})} }

// begin resets the decoder to a body.
func (d *decoder) begin(body *bytes.Buffer) {
	// Duplicates are found here: the tokenizer would stop at the first.
	d.json.Reset(body, jsontext.AllowDuplicateNames(true))
	d.base, d.errs, d.bad = "", nil, 0
}

func (d *decoder) fail(pointer, format string, args ...any) {
	if d.bad++; d.bad <= maxErrors {
		d.errs = append(d.errs, quota.FieldError{Pointer: d.base + pointer, Detail: fmt.Sprintf(format, args...)})
	}
}

// drain returns the errors since the last call.
func (d *decoder) drain() []quota.FieldError {
	errs := d.errs
	d.errs = nil
	return errs
}

// check reads a body that is one check. others are errors found outside the
// body. Where there is any error, those that the limiter would find are listed
// with it.
func (d *decoder) check(body *bytes.Buffer, others []quota.FieldError) (quota.Request, []quota.FieldError) {
	d.begin(body)
	if !d.finish(d.readCheck()) {
		return quota.Request{}, append(d.drain(), others...)
	}
	req, errs := d.request(), d.drain()
	if len(errs)+len(others) > 0 {
		errs = append(merge(errs, req.Validate(), ""), others...)
	}
	return req, errs
}

// item is one check of a batch: a request, or what is wrong with it.
type item struct {
	request quota.Request
	errs    []quota.FieldError
	foreign bool // its tenant is not one that the caller may name
}

// batch reads a body of checks. It returns the errors of the envelope; those of
// one check are in its item, unless they are more than maxErrors in all: then the
// envelope has them.
func (d *decoder) batch(body *bytes.Buffer) (items []item, envelope []quota.FieldError) {
	d.begin(body)
	members := []string{"checks"}
	seen, err := d.object("", "a JSON object with the member checks", members, func(int) (err error) {
		envelope = d.drain()
		items, err = d.checks()
		return err
	})
	if d.finish(err) && seen == 0 {
		d.fail("/checks", "is required: an array of 1 to %d checks", MaxChecks)
	}
	if errors.Is(err, errTooMany) {
		for i := range items {
			envelope = append(envelope, items[i].errs...)
		}
	}
	return items, append(envelope, d.drain()...)
}

func (d *decoder) checks() ([]item, error) {
	if d.json.PeekKind() != '[' {
		return nil, d.skip("/checks", "an array of 1 to 100 checks")
	}
	if _, err := d.json.ReadToken(); err != nil {
		return nil, err
	}
	items := make([]item, 0, 8)
	for d.json.PeekKind() != ']' {
		if len(items) == MaxChecks {
			d.base = ""
			d.fail("/checks", checksRule+", has more")
			return items, errTooMany
		}
		d.base = "/checks/" + strconv.Itoa(len(items))
		switch err := d.readCheck(); {
		case errors.Is(err, errTooMany):
			return items, err
		case err != nil:
			d.errs = nil
			return nil, err
		}
		it := item{request: d.request(), errs: d.drain()}
		if len(it.errs) > 0 {
			it.errs = merge(it.errs, it.request.Validate(), d.base)
		}
		items = append(items, it)
	}
	d.base = ""
	if len(items) == 0 {
		d.fail("/checks", checksRule+", has none")
	}
	_, err := d.json.ReadToken()
	return items, err
}

// The members of a check, by their index in readCheck.
const (
	memberTenant = iota
	memberPolicy
	memberDimensions
	memberCost
)

// readCheck reads one check into the decoder's spans. An error means that the
// body is not JSON, so that nothing after it can be read.
func (d *decoder) readCheck() error {
	d.text, d.dims = d.text[:0], d.dims[:0]
	d.tenant, d.policy, d.cost = span{}, span{}, 1
	members := []string{"tenant", "policy", "dimensions", "cost"}
	seen, err := d.object("", "an object with the members tenant, policy, dimensions, cost", members, func(i int) (err error) {
		switch i {
		case memberTenant:
			d.tenant, _, err = d.string("/tenant")
		case memberPolicy:
			var ok bool
			if d.policy, ok, err = d.string("/policy"); ok && d.policy.from == d.policy.to {
				d.fail("/policy", emptyPolicy)
			}
		case memberDimensions:
			err = d.dimensions()
		case memberCost:
			err = d.number()
		}
		return err
	})
	if err == nil && seen&(1<<memberTenant) == 0 {
		d.fail("/tenant", "is required")
	}
	return err
}

// request makes the request of the spans.
func (d *decoder) request() quota.Request {
	all := string(d.text)
	cut := func(s span) string { return all[s.from:s.to] }
	r := quota.Request{Tenant: cut(d.tenant), Policy: cut(d.policy), Cost: d.cost}
	if len(d.dims) > 0 {
		r.Dimensions = make(quota.Dimensions, len(d.dims), len(d.dims)+1)
		for i, dim := range d.dims {
			r.Dimensions[i] = quota.Dimension{Name: cut(dim.name), Value: cut(dim.value)}
		}
		_, _ = r.Dimensions.Sort() // Validate finds a duplicate, with its pointer
	}
	return r
}

// object reads an object and calls member with the index of each name in known,
// or with −1 for any name when known is nil; member must consume the value. seen
// has a bit for each known member. A value that is no object is skipped with an
// error at pointer that names what was wanted, and every member counts as seen.
func (d *decoder) object(pointer, wanted string, known []string, member func(i int) error) (seen uint, err error) {
	if d.json.PeekKind() != '{' {
		return ^uint(0), d.skip(pointer, wanted)
	}
	if _, err := d.json.ReadToken(); err != nil {
		return 0, err
	}
	for d.json.PeekKind() != '}' {
		if d.bad > maxErrors {
			return seen, errTooMany
		}
		quoted, err := d.json.ReadValue()
		if err != nil {
			return seen, err
		}
		if d.name, err = jsontext.AppendUnquote(d.name[:0], quoted); err != nil {
			return seen, err
		}
		i := slices.IndexFunc(known, func(name string) bool { return name == string(d.name) })
		switch {
		case i < 0 && known != nil:
			d.fail("/"+escapeToken(d.name), "is not a member here; there are: %s", strings.Join(known, ", "))
			err = d.json.SkipValue()
		case i >= 0 && seen&(1<<i) != 0:
			d.fail("/"+known[i], "is duplicated")
			err = d.json.SkipValue()
		default:
			if i >= 0 {
				seen |= 1 << i
			}
			err = member(i)
		}
		if err != nil {
			return seen, err
		}
	}
	_, err = d.json.ReadToken()
	return seen, err
}

// string reads a string to the end of d.text; ok is false, with an error, for a
// value of another type.
func (d *decoder) string(pointer string) (s span, ok bool, err error) {
	if d.json.PeekKind() != '"' {
		return span{}, false, d.skip(pointer, "a string")
	}
	quoted, err := d.json.ReadValue()
	if err != nil {
		return span{}, false, err
	}
	from := len(d.text)
	d.text, err = jsontext.AppendUnquote(d.text, quoted)
	return span{from, len(d.text)}, err == nil, err
}

func (d *decoder) dimensions() error {
	members := 0
	_, err := d.object("/dimensions", "an object of strings", nil, func(int) error {
		switch members++; {
		case members == MaxDimensions+1:
			d.fail("/dimensions", tooManyDimensions)
			return d.json.SkipValue()
		case members > MaxDimensions:
			d.bad++
			return d.json.SkipValue()
		}
		if d.json.PeekKind() != '"' {
			return d.skip("/dimensions/"+escapeToken(d.name), "a string")
		}
		from := len(d.text)
		d.text = append(d.text, d.name...)
		name := span{from, len(d.text)}
		value, _, err := d.string("")
		d.dims = append(d.dims, dimension{name, value})
		return err
	})
	return err
}

// number reads the cost.
func (d *decoder) number() error {
	kind := d.json.PeekKind()
	literal, err := d.json.ReadValue()
	if err != nil {
		return err
	}
	cost, ok := parseCost(string(literal))
	if kind != '0' || !ok {
		d.fail("/cost", "%s, is %s", costRule, truncate(string(literal)))
		return nil
	}
	d.cost = cost
	return nil
}

// parseCost accepts the digits of 1…MaxUnits and nothing else: no sign, no
// fraction, no exponent, no leading zero. 5.0 and 5e0 are refused too, since a
// client that writes them computes with floats and will one day send 4.9999.
func parseCost(s string) (int64, bool) {
	n, err := strconv.ParseInt(s, 10, 64)
	return n, err == nil && s[0] != '+' && s[0] != '0' && n >= 1 && n <= quota.MaxUnits
}

// skip passes over a value of the wrong type.
func (d *decoder) skip(pointer, wanted string) error {
	kind := d.json.PeekKind()
	if err := d.json.SkipValue(); err != nil {
		return err
	}
	d.fail(pointer, "must be %s, is %s", wanted, kindName(kind))
	return nil
}

// finish reports whether the body was read to its end, and records what made it
// unreadable otherwise.
func (d *decoder) finish(err error) bool {
	if err == nil {
		if _, err = d.json.ReadToken(); errors.Is(err, io.EOF) {
			return true
		}
		err = errors.New("the body must hold one JSON value and nothing after it")
	}
	d.base = ""
	var s *jsontext.SyntacticError
	switch {
	case errors.Is(err, errTooMany):
		if d.bad > maxErrors {
			d.errs = append(d.errs, quota.FieldError{Detail: "and more errors: the rest of the body was not read"})
		}
	case errors.Is(err, io.EOF) && d.json.InputOffset() == 0:
		d.fail("", "the body is empty, it must hold a JSON object")
	case errors.As(err, &s):
		d.fail(truncate(string(s.JSONPointer)), "is not JSON at byte %d: %s", s.ByteOffset, truncate(s.Err.Error()))
	case errors.Is(err, io.ErrUnexpectedEOF):
		d.fail("", "is not JSON: it ends in the middle")
	default:
		d.fail("", "%v", err)
	}
	return false
}

// merge adds the errors at pointers below base about which nothing is known yet:
// a field of the wrong type is not also empty.
func merge(own, others []quota.FieldError, base string) []quota.FieldError {
	n := len(own)
	for _, m := range others {
		m.Pointer = base + m.Pointer
		known := slices.ContainsFunc(own[:n], func(o quota.FieldError) bool {
			return o.Pointer == m.Pointer || o.Pointer == base
		})
		if !known {
			own = append(own, m)
		}
	}
	return own
}

// escapeToken makes a reference token of a JSON pointer (RFC 6901), truncated
// when it is too long to be a mistyped name.
func escapeToken(name []byte) string {
	return strings.ReplaceAll(strings.ReplaceAll(truncate(string(name)), "~", "~0"), "/", "~1")
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
