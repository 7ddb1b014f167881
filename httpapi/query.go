package httpapi

import (
	"net/url"
	"slices"
	"strings"

	"github.com/regiond/regiond/quota"
)

// query is what may stand in the query of a native call. Mistakes point to
// where the same thing would stand in a body.
type query struct {
	explain bool
	request quota.Request // policy, cost and dimensions of a usage call
}

// parseQuery reads a query strictly: an unknown, misspelt or repeated parameter
// is refused rather than ignored. Only usage calls take more than explain.
func parseQuery(raw string, usage bool) (query, []quota.FieldError) {
	q := query{request: quota.Request{Cost: 1}}
	if raw == "" {
		return q, nil
	}
	values, err := url.ParseQuery(raw)
	if err != nil {
		return q, []quota.FieldError{{Detail: "the query is not well-formed: " + clip(err.Error())}}
	}
	names := make([]string, 0, len(values))
	for name := range values {
		names = append(names, name)
	}
	slices.Sort(names)
	var ms []quota.FieldError
	for _, name := range names {
		if len(ms) >= maxMistakes {
			break
		}
		pointer, detail := q.parameter(name, values[name], usage)
		if detail != "" {
			ms = append(ms, quota.FieldError{Pointer: pointer, Detail: detail})
		}
	}
	if len(q.request.Dimensions) > MaxDimensions {
		ms = append(ms, quota.FieldError{Pointer: "/dimensions", Detail: tooManyDims})
	}
	// Names are sorted, and so are the dimensions among them.
	return q, ms
}

func (q *query) parameter(name string, values []string, usage bool) (pointer, detail string) {
	pointer = "/" + escapeToken([]byte(name))
	dimension, isDim := strings.CutPrefix(name, "dim.")
	if isDim {
		pointer = "/dimensions/" + escapeToken([]byte(dimension))
	}
	if len(values) > 1 {
		return pointer, "stands twice in the query"
	}
	value := values[0]
	switch {
	case name == "explain":
		q.explain = value == "1"
		if value != "0" && value != "1" {
			return pointer, "must be 0 or 1"
		}
	case !usage:
		return pointer, "is not a parameter here; there is: explain"
	case name == "policy":
		q.request.Policy = value
		if value == "" {
			return pointer, emptyPolicy
		}
	case name == "cost":
		cost, ok := parseCost(value)
		if !ok {
			return pointer, costRule + ", is " + clip(value)
		}
		q.request.Cost = cost
	case isDim:
		q.request.Dimensions = append(q.request.Dimensions, quota.Dimension{Name: dimension, Value: value})
	default:
		return pointer, "is not a parameter here; there are: policy, cost, explain, dim.<name>"
	}
	return "", ""
}
