package httpapi

import (
	"slices"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/regiond/regiond/quota"
)

// The members of a check, as bits of those seen.
const (
	seenTenant = 1 << iota
	seenPolicy
	seenDimensions
	seenCost
)

const checkMembers = "tenant, policy, dimensions, cost"

// readCheck reads one check into the decoder's spans. An error means that the
// body is not JSON and nothing after it can be read.
func (d *decoder) readCheck() error {
	d.text, d.dims = d.text[:0], d.dims[:0]
	d.tenant, d.policy, d.cost = span{}, span{}, 1
	seen := 0
	opened, err := d.object("", "an object with the members "+checkMembers, func() error {
		return d.checkMember(&seen)
	})
	if err == nil && opened && seen&seenTenant == 0 {
		d.wrong("/tenant", "is required")
	}
	return err
}

func (d *decoder) checkMember(seen *int) error {
	bit := 0
	switch string(d.name) {
	case "tenant":
		bit = seenTenant
	case "policy":
		bit = seenPolicy
	case "dimensions":
		bit = seenDimensions
	case "cost":
		bit = seenCost
	default:
		d.unknown("", checkMembers)
		return d.json.SkipValue()
	}
	if *seen&bit != 0 {
		d.wrong("/"+string(d.name), "stands twice")
		return d.json.SkipValue()
	}
	*seen |= bit
	var err error
	switch bit {
	case seenTenant:
		d.tenant, _, err = d.string("/tenant")
	case seenPolicy:
		var ok bool
		if d.policy, ok, err = d.string("/policy"); ok && d.policy.from == d.policy.to {
			d.wrong("/policy", emptyPolicy)
		}
	case seenDimensions:
		err = d.dimensions()
	case seenCost:
		err = d.costNumber()
	}
	return err
}

const (
	emptyPolicy   = "must not be empty; leave it out for the tenant's own"
	tooManyDims   = "may have at most 16 members, has more"
	costRule      = "must be a whole number between 1 and 1099511627776 in plain digits"
	maxCostDigits = 13 // of 2⁴⁰
)

// string reads a string to the end of d.text; ok is false, with a mistake, for
// a value of another type.
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
	_, err := d.object("/dimensions", "an object of strings", func() error {
		if members++; members > MaxDimensions {
			if members == MaxDimensions+1 {
				d.wrong("/dimensions", tooManyDims)
			}
			return d.json.SkipValue()
		}
		from := len(d.text)
		d.text = append(d.text, d.name...)
		name := span{from, len(d.text)}
		value, ok, err := d.dimensionValue()
		if ok {
			d.dims = append(d.dims, dimSpan{name, value})
		}
		return err
	})
	return err
}

// dimensionValue makes the pointer of a mistake only when there is one.
func (d *decoder) dimensionValue() (span, bool, error) {
	if d.json.PeekKind() == '"' {
		return d.string("")
	}
	return span{}, false, d.skip("/dimensions/"+escapeToken(d.name), "a string")
}

func (d *decoder) costNumber() error {
	kind := d.json.PeekKind()
	literal, err := d.json.ReadValue()
	if err != nil {
		return err
	}
	cost, ok := parseCost(string(literal))
	if kind != '0' || !ok {
		d.wrong("/cost", "%s, is %s", costRule, clip(string(literal)))
		return nil
	}
	d.cost = cost
	return nil
}

// parseCost accepts the digits of 1…MaxUnits and nothing else: no sign, no
// fraction, no exponent, no leading zero. 5.0 and 5e0 are refused too, since a
// client that writes them computes with floats and will one day send 4.9999.
func parseCost(s string) (int64, bool) {
	if s == "" || len(s) > maxCostDigits || s[0] == '0' {
		return 0, false
	}
	var n int64
	for i := range len(s) {
		if s[i] < '0' || s[i] > '9' {
			return 0, false
		}
		n = n*10 + int64(s[i]-'0')
	}
	return n, n <= quota.MaxUnits
}

// request makes the request of the spans and adds what quota finds wrong with
// it, except where the decoder has found something already.
func (d *decoder) request() (quota.Request, []quota.FieldError) {
	all := string(d.text)
	r := quota.Request{
		Tenant: all[d.tenant.from:d.tenant.to],
		Policy: all[d.policy.from:d.policy.to],
		Cost:   d.cost,
	}
	if len(d.dims) > 0 {
		r.Dimensions = make(quota.Dimensions, len(d.dims), len(d.dims)+1)
		for i, s := range d.dims {
			r.Dimensions[i] = quota.Dimension{Name: all[s.name.from:s.name.to], Value: all[s.value.from:s.value.to]}
		}
		// A duplicate is found again, with its pointer, by Validate.
		_, _ = r.Dimensions.Sort()
	}
	own := d.found()
	return r, merge(own, r.Validate(), d.base)
}

// merge adds what stands at a pointer, or under a base, that nothing is known
// against yet: a field of the wrong type is not also empty.
func merge(own, others []quota.FieldError, base string) []quota.FieldError {
	n := len(own)
	for _, m := range others {
		m.Pointer = base + m.Pointer
		taken := slices.ContainsFunc(own[:n], func(o quota.FieldError) bool {
			return o.Pointer == m.Pointer || o.Pointer == base
		})
		if !taken {
			own = append(own, m)
		}
	}
	return own
}
