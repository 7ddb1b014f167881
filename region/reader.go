package region

import (
	"encoding"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
)

// reader takes a Topology out of a tree. A mistake of shape (an unknown field, a
// list where text belongs) stops it, because what follows would be guessing; a
// mistake of value is kept and reading goes on.
type reader struct {
	shape  *Mistake
	values []Mistake
	// said holds the pointers of values: what is wrong in its spelling is not
	// also wrong for being the zero value that it left behind.
	said map[string]bool
}

// take reads one node into wherever it was made for.
type take func(*node)

// misshapen keeps the first mistake of shape.
func (r *reader) misshapen(at Place, format string, args ...any) {
	if r.shape == nil {
		r.shape = &Mistake{at, fmt.Sprintf(format, args...)}
	}
}

// wrong keeps a mistake of value.
func (r *reader) wrong(at Place, format string, args ...any) {
	r.values = append(r.values, Mistake{at, fmt.Sprintf(format, args...)})
	r.said[at.Pointer] = true
}

// is reports whether a node has one of the kinds; if not, that is a mistake of
// shape, described as "must be <what>, found …".
func (r *reader) is(n *node, what string, kinds ...kind) bool {
	if r.shape == nil && !slices.Contains(kinds, n.kind) {
		found := string(n.kind)
		switch n.kind {
		case text:
			found += " " + strconv.Quote(clip(n.text))
		case number, truth:
			found += " " + clip(n.text)
		}
		r.misshapen(n.Place, "must be %s, found %s", what, found)
	}
	return r.shape == nil
}

// fields reads a mapping whose keys are known.
func (r *reader) fields(n *node, known map[string]take) {
	if !r.is(n, string(mapping), mapping) {
		return
	}
	for _, e := range n.entries {
		read, ok := known[e.key]
		if !ok {
			r.misshapen(e.Place, "%s", unknownField(e.key, slices.Sorted(maps.Keys(known))))
			return
		}
		read(e.value)
	}
}

// need marks the fields of a mapping that are not optional and not there.
func (r *reader) need(n *node, keys ...string) {
	if r.shape != nil {
		return
	}
	for _, key := range keys {
		if _, ok := n.byKey[key]; !ok {
			r.wrong(Place{n.Line, n.Column, under(n.Pointer, key)}, "is missing and has no default")
		}
	}
}

// text reads a field that has something to say when it is there.
func (r *reader) text(dst *string) take {
	return func(n *node) {
		if n.kind == number || n.kind == truth {
			r.misshapen(n.Place, "must be text; write \"%s\" with quotes", visible(clip(n.text)))
		}
		if !r.is(n, "text", text) {
			return
		}
		if n.text == "" {
			r.wrong(n.Place, "must not be empty")
		}
		*dst = n.text
	}
}

// whole reads plain decimals only: YAML would take 010 for eight.
func (r *reader) whole(dst *int64) take {
	return func(n *node) {
		digits := strings.TrimPrefix(n.text, "-")
		plain := digits != "" && strings.Trim(digits, "0123456789") == "" && (digits == "0" || digits[0] != '0')
		if n.kind == number && !plain {
			r.misshapen(n.Place, "must be a whole number in plain decimals such as 600, found %s", clip(n.text))
		}
		if !r.is(n, "a whole number", number) {
			return
		}
		v, err := strconv.ParseInt(n.text, 10, 64)
		if err != nil {
			r.wrong(n.Place, "is too large a number: %s", clip(n.text))
		}
		*dst = v
	}
}

func (r *reader) truth(dst *bool) take {
	return func(n *node) {
		if r.is(n, "true or false", truth) {
			*dst = n.text == "true"
		}
	}
}

// duration reads a Go duration; a bare number has no unit and is refused.
func (r *reader) duration(dst *time.Duration) take {
	return func(n *node) {
		if !r.is(n, "a duration such as 1m or 500ms", text, number) {
			return
		}
		d, err := time.ParseDuration(n.text)
		if err != nil {
			r.wrong(n.Place, "must be a duration with a unit, such as 1m or 500ms, is %q", clip(n.text))
			return
		}
		*dst = d
	}
}

// percent reads "10%" as 10.
func (r *reader) percent(dst *float64) take {
	return func(n *node) {
		if !r.is(n, "a percentage such as 10%", text, number) {
			return
		}
		digits, ok := strings.CutSuffix(n.text, "%")
		v, err := strconv.ParseFloat(digits, 64)
		if !ok || err != nil || strings.Trim(digits, "0123456789.") != "" || v > 100 {
			r.wrong(n.Place, "must be a percentage between 0%% and 100%%, such as 10%%, is %q", clip(n.text))
			return
		}
		*dst = v
	}
}

// word reads one of the words of a type that knows them.
func (r *reader) word(dst encoding.TextUnmarshaler) take {
	return func(n *node) {
		if !r.is(n, "text", text) {
			return
		}
		if err := dst.UnmarshalText([]byte(n.text)); err != nil {
			r.wrong(n.Place, "%v", err)
		}
	}
}

// wordOf reads text into a type of its own; Validate knows its words.
func wordOf[T ~string](r *reader, dst *T) take {
	return func(n *node) {
		var s string
		r.text(&s)(n)
		*dst = T(s)
	}
}

// list reads a sequence, each element by read.
func list[T any](r *reader, dst *[]T, read func(*node, *T)) take {
	return func(n *node) {
		if !r.is(n, string(sequence), sequence) {
			return
		}
		*dst = make([]T, len(n.items))
		for i, element := range n.items {
			read(element, &(*dst)[i])
		}
	}
}

func (r *reader) texts(dst *[]string) take {
	return list(r, dst, func(n *node, s *string) { r.text(s)(n) })
}

// optional reads a field whose absence is a nil pointer.
func optional[T any](dst **T, read func(*node, *T)) take {
	return func(n *node) {
		*dst = new(T)
		read(n, *dst)
	}
}

// into reads a field that is a struct.
func into[T any](dst *T, read func(*node, *T)) take {
	return func(n *node) { read(n, dst) }
}
