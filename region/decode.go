package region

import (
	"encoding"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math"
	"net/netip"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/token"

	"github.com/regiond/regiond/quota"
)

// decoder reads a YAML document into a Topology, along the yaml tags of the
// fields; ",required" after a name is checked here.
//
// goccy/go-yaml parses; its own strict decoding was tried and is not used. Of the
// files in testdata/topology it accepts ten that are mistakes of shape (020,
// 20.5 and "20" as numbers, 42 as text, a second document), gives a wrong position
// or none for sixteen, stops at the first mistake, and takes a merge whose field
// is overridden for a duplicate key. It also follows aliases without a bound.
//
// A mistake of shape (an unknown field, a list where text belongs) ends the
// decoding, since what follows would be guessing; a mistake of value is noted
// and decoding goes on.
type decoder struct {
	anchors map[string]ast.Node // those that are complete so far, by name
	values  int
	places  map[string]Place // of each value that was decoded, by pointer
	wrong   []Problem        // mistakes of value
	said    map[string]bool  // pointers of those: Validate need not repeat them
	blanks  bool             // a key without a value is as if it were not there
}

// shapeError is what decoder panics with.
type shapeError struct{ Problem }

// decode returns the decoder for its places and mistakes of value; the problem is
// a mistake of shape.
func decode(src []byte, dst any, blanks bool) (d *decoder, shape *Problem) {
	d = &decoder{anchors: map[string]ast.Node{}, places: map[string]Place{}, said: map[string]bool{}, blanks: blanks}
	defer func() {
		switch p := recover().(type) {
		case nil:
		case shapeError:
			shape = &p.Problem
		default:
			panic(p)
		}
	}()
	d.value(d.document(src), "", reflect.ValueOf(dst).Elem(), 0)
	return d, nil
}

// Source is where the values of a file are that Decode has read.
type Source struct{ d *decoder }

// At is the place of what a pointer names, or of the nearest thing around it that exists.
func (s Source) At(pointer string) Place { return s.d.nearest(pointer) }

// Has reports whether the file has a value at a pointer.
func (s Source) Has(pointer string) bool { return s.d.has(pointer) }

// Decode reads a file that belongs to a topology into the struct that dst points to, as strictly and within the same
// bounds, but keys may be without values: the mistakes are the first one of shape alone, or all of value.
func Decode(src []byte, dst any) (Source, []Problem) {
	d, shape := decode(src, dst, true)
	if shape != nil {
		return Source{d}, []Problem{*shape}
	}
	return Source{d}, d.wrong
}

// Anything is any value: nil, bool, float64, string, []any or map[string]any.
type Anything struct{ Value any }

// Spelled is any scalar, as it is spelled: text, a number, true, or nothing.
type Spelled string

func (d *decoder) fail(at Place, format string, args ...any) {
	panic(shapeError{Problem{Place: at, Detail: fmt.Sprintf(format, args...)}})
}

// note keeps a mistake of value.
func (d *decoder) note(at Place, format string, args ...any) {
	d.wrong = append(d.wrong, Problem{Place: at, Detail: fmt.Sprintf(format, args...)})
	d.said[at.Pointer] = true
}

// has reports whether the file has a value at a pointer.
func (d *decoder) has(pointer string) bool { _, ok := d.places[pointer]; return ok }

// nearest is the place of what a pointer names, or of the closest thing around
// it that exists.
func (d *decoder) nearest(pointer string) Place {
	for p := pointer; ; p = p[:strings.LastIndexByte(p, '/')] {
		if at, ok := d.places[p]; ok || p == "" {
			return Place{max(at.Line, 1), max(at.Column, 1), pointer}
		}
	}
}

// value decodes one node, aliases followed, into dst.
func (d *decoder) value(n ast.Node, pointer string, dst reflect.Value, depth int) {
	at := place(tokenOf(n), pointer)
	d.count(at, depth)
	switch v := n.(type) {
	case *ast.AnchorNode: // named after it is decoded, so that it cannot contain itself
		d.value(v.Value, pointer, dst, depth+1)
		d.target(v, pointer)
		return
	case *ast.AliasNode:
		d.value(d.target(v, pointer), pointer, dst, depth+1)
		return
	case *ast.TagNode:
		d.fail(at, "tags such as %s have no use here; write the value alone", quota.Clip(v.Start.Value))
	case *ast.SequenceNode:
		at = place(v.Start, pointer)
	}
	s := scalarOf(n)
	if d.blanks && s.kind == nothing {
		return
	}
	d.places[pointer] = at
	switch p := dst.Addr().Interface().(type) {
	case *time.Duration:
		d.want(s, at, "a duration such as 1m or 500ms", text, number)
		parsed, err := time.ParseDuration(s.text)
		if err != nil {
			d.note(at, "must be a duration with a unit, such as 1m or 500ms, is %q", quota.Clip(s.text))
		}
		*p = parsed
	case *netip.Prefix:
		parsed, err := netip.ParsePrefix(d.text(s, at))
		if err != nil && s.text != "" {
			d.note(at, "must be a prefix such as 10.0.0.0/8 or 192.0.2.7/32, is %q", quota.Clip(s.text))
		}
		*p = parsed
	case *Anything:
		p.Value = d.anything(n, s, at, depth)
	case *Files:
		list := []ast.Node{n}
		if sequence, ok := n.(*ast.SequenceNode); ok {
			list = sequence.Values
		}
		for i, value := range list {
			var name string
			d.value(value, item(pointer, i), reflect.ValueOf(&name).Elem(), depth+1)
			*p = append(*p, name)
		}
	case *Spelled:
		d.want(s, at, "text", text, number, truth, nothing)
		*p = Spelled(s.text)
	case *[]Domain:
		for _, e := range d.entries(n, at, "a mapping", depth) {
			var own Domain
			d.value(e.value, e.Pointer, reflect.ValueOf(&own).Elem(), depth+1)
			own.Name, own.At = e.key, e.Pointer
			*p = append(*p, own)
		}
		slices.SortFunc(*p, func(a, b Domain) int { return strings.Compare(a.Name, b.Name) })
	case *Compat:
		if *p = DefaultCompat; s.kind != truth {
			d.fields(n, at, dst, depth)
		} else if s.text != "true" {
			*p = Compat{}
		}
	case *slog.Level: // accepts four words of the many that slog does
		if !slices.Contains([]string{"debug", "info", "warn", "error"}, d.text(s, at)) {
			d.note(at, "is one of debug, info, warn, error, not %q", quota.Clip(s.text))
		}
		_ = p.UnmarshalText([]byte(s.text)) // fails only for what is noted
	case *quota.Overshoot:
		d.want(s, at, "none or a percentage such as 10%", text, number)
		if err := p.UnmarshalText([]byte(s.text)); err != nil {
			d.note(at, "%v, is %q", err, quota.Clip(s.text))
		}
	case *[]quota.Match:
		d.matches(n, at, p, depth)
	case *[]quota.DimensionSource:
		for _, e := range d.entries(n, at, "a mapping", depth) {
			s := quota.DimensionSource{Name: e.key}
			d.value(e.value, e.Pointer, reflect.ValueOf(&s).Elem(), depth+1)
			*p = append(*p, s)
		}
		slices.SortFunc(*p, func(a, b quota.DimensionSource) int { return strings.Compare(a.Name, b.Name) })
	case *Tenants:
		d.tenants(n, at, p, depth)
	case encoding.TextUnmarshaler:
		d.want(s, at, "text", text)
		if err := p.UnmarshalText([]byte(s.text)); err != nil {
			d.note(at, "%v", err)
		}
	default:
		d.plain(n, s, at, dst, depth)
	}
}

func (d *decoder) anything(n ast.Node, s scalar, at Place, depth int) any {
	within := func(n ast.Node, pointer string) any {
		var own Anything
		d.value(n, pointer, reflect.ValueOf(&own).Elem(), depth+1)
		return own.Value
	}
	switch s.kind {
	case mapping:
		m := map[string]any{}
		for _, e := range d.entries(n, at, "a mapping", depth) {
			m[e.key] = within(e.value, e.Pointer)
		}
		return m
	case sequence:
		list := []any{}
		for i, value := range n.(*ast.SequenceNode).Values {
			list = append(list, within(value, item(at.Pointer, i)))
		}
		return list
	case number:
		if f, err := strconv.ParseFloat(s.text, 64); err == nil && !math.IsInf(f, 0) && !math.IsNaN(f) {
			return f
		}
		return s.text
	case truth:
		return s.text == "true"
	case nothing:
		return nil
	}
	return s.text
}

// plain decodes into the kinds that Go has.
func (d *decoder) plain(n ast.Node, s scalar, at Place, dst reflect.Value, depth int) {
	switch dst.Kind() {
	case reflect.Pointer:
		dst.Set(reflect.New(dst.Type().Elem()))
		d.value(n, at.Pointer, dst.Elem(), depth)
	case reflect.Struct:
		d.fields(n, at, dst, depth)
	case reflect.Slice:
		list, ok := n.(*ast.SequenceNode)
		if !ok {
			d.fail(at, "must be a list, found %s", s)
		}
		dst.Set(reflect.MakeSlice(dst.Type(), len(list.Values), len(list.Values)))
		for i, value := range list.Values {
			d.value(value, item(at.Pointer, i), dst.Index(i), depth+1)
		}
	case reflect.String:
		dst.SetString(d.text(s, at))
	case reflect.Bool:
		d.want(s, at, "true or false", truth)
		dst.SetBool(s.text == "true")
	case reflect.Int64, reflect.Int:
		dst.SetInt(d.whole(s, at))
	case reflect.Float64:
		dst.SetFloat(d.percent(s, at))
	default:
		panic("region: no way to decode a " + dst.Type().String())
	}
}

// fields decodes a mapping into a struct.
func (d *decoder) fields(n ast.Node, at Place, dst reflect.Value, depth int) {
	fields, required := map[string]reflect.Value{}, []string{}
	for i := range dst.NumField() {
		name, need, _ := strings.Cut(dst.Type().Field(i).Tag.Get("yaml"), ",")
		if name == "" {
			continue // the key of the entry, not a field of it
		}
		fields[name] = dst.Field(i)
		if need == "required" {
			required = append(required, name)
		}
	}
	for _, e := range d.entries(n, at, "a mapping", depth) {
		field, ok := fields[e.key]
		if !ok && e.key == "global_buckets" && dst.Type() == reflect.TypeFor[quota.Limit]() {
			d.note(e.Place, "is not needed any more: the estimate of what other regions used is as close without it; remove the line")
			continue
		}
		if !ok {
			d.fail(e.Place, "unknown field %q; known here: %s", quota.Clip(e.key), strings.Join(slices.Sorted(maps.Keys(fields)), ", "))
		}
		d.value(e.value, e.Pointer, field, depth+1)
	}
	for _, name := range required {
		if pointer := under(at.Pointer, name); !d.has(pointer) {
			d.note(Place{at.Line, at.Column, pointer}, "is missing and has no default")
		}
	}
}

func (d *decoder) matches(n ast.Node, at Place, dst *[]quota.Match, depth int) {
	for _, e := range d.entries(n, at, "a mapping such as {route: login}", depth) {
		m := quota.Match{Dimension: e.key}
		d.value(e.value, e.Pointer, reflect.ValueOf(&m.Value).Elem(), depth+1)
		if err := quota.ValidName(m.Dimension); err != nil {
			d.note(e.Place, "%v", err)
		} else if err := quota.ValidID(m.Value); err != nil && !d.said[e.Pointer] {
			d.note(d.places[e.Pointer], "%v", err)
		} else {
			*dst = append(*dst, m)
		}
	}
	slices.SortFunc(*dst, func(a, b quota.Match) int { return strings.Compare(a.Dimension, b.Dimension) })
}

func (d *decoder) tenants(n ast.Node, at Place, dst *Tenants, depth int) {
	entries := d.entries(n, at, "a mapping", depth)
	dst.Listed = make(map[string]quota.Tenant, len(entries))
	for _, e := range entries {
		var t quota.Tenant
		d.value(e.value, e.Pointer, reflect.ValueOf(&t).Elem(), depth+1)
		if e.key == DefaultTenant {
			dst.Default = &t
			continue
		}
		if err := quota.ValidID(e.key); err != nil {
			d.note(e.Place, "a tenant id %v", err)
		}
		dst.Listed[e.key] = t
	}
}

// text is for fields that must contain something when they are there.
func (d *decoder) text(s scalar, at Place) string {
	if s.kind == number || s.kind == truth {
		d.fail(at, "must be text; write \"%s\" with quotes", visible(quota.Clip(s.text)))
	}
	d.want(s, at, "text", text)
	if s.text == "" {
		d.note(at, "must not be empty")
	}
	return s.text
}

// whole accepts plain decimals only: YAML takes 010 for eight.
func (d *decoder) whole(s scalar, at Place) int64 {
	d.want(s, at, "a whole number", number)
	v, err := strconv.ParseInt(s.text, 10, 64)
	switch {
	case errors.Is(err, strconv.ErrRange):
		d.note(at, "is too large a number: %s", quota.Clip(s.text))
	case err != nil || strconv.FormatInt(v, 10) != s.text:
		d.fail(at, "must be a whole number in plain decimals such as 600, found %s", quota.Clip(s.text))
	}
	return v
}

// percent reads "10%" as 10.
func (d *decoder) percent(s scalar, at Place) float64 {
	d.want(s, at, "a percentage such as 10%", text, number)
	digits, ok := strings.CutSuffix(s.text, "%")
	v, err := strconv.ParseFloat(digits, 64)
	if !ok || err != nil || strings.Trim(digits, "0123456789.") != "" || v > 100 {
		d.note(at, "must be a percentage between 0%% and 100%%, such as 10%%, is %q", quota.Clip(s.text))
	}
	return v
}

// kind is what a YAML value is before a field says what it should be. The words
// complete "must be …, found …".
type kind string

const (
	mapping  kind = "a mapping"
	sequence kind = "a list"
	text     kind = "text"
	number   kind = "the number"
	truth    kind = "the boolean"
	nothing  kind = "nothing"
)

// scalar is the kind of a value and, unless it has others in it, its spelling.
type scalar struct {
	kind kind
	text string
}

func (s scalar) String() string {
	switch s.kind {
	case text:
		return "text " + strconv.Quote(quota.Clip(s.text))
	case number, truth:
		return string(s.kind) + " " + quota.Clip(s.text)
	}
	return string(s.kind)
}

func (d *decoder) want(s scalar, at Place, what string, kinds ...kind) {
	if !slices.Contains(kinds, s.kind) {
		d.fail(at, "must be %s, found %s", what, s)
	}
}

// scalarOf keeps the spelling of a value and the parser's opinion of its kind. The
// parser takes numbers for text that do not fit 64 bits or have an exponent.
func scalarOf(n ast.Node) scalar {
	switch v := n.(type) {
	case *ast.MappingNode, *ast.MappingValueNode:
		return scalar{kind: mapping}
	case *ast.SequenceNode:
		return scalar{kind: sequence}
	case *ast.StringNode:
		_, err := strconv.ParseFloat(v.Value, 64)
		if v.Token.Type == token.StringType && v.Value != "" && strings.IndexByte("+-0123456789", v.Value[0]) >= 0 &&
			(err == nil || errors.Is(err, strconv.ErrRange)) {
			return scalar{number, v.Value}
		}
		return scalar{text, v.Value}
	case *ast.LiteralNode:
		return scalar{text, v.Value.Value}
	case *ast.IntegerNode, *ast.FloatNode, *ast.InfinityNode, *ast.NanNode:
		return scalar{number, strings.TrimSpace(n.GetToken().Value)}
	case *ast.BoolNode:
		return scalar{truth, v.String()}
	}
	return scalar{kind: nothing}
}

// entry is a key of a mapping and its value.
type entry struct {
	Place // of the key; Pointer is the value's
	key   string
	value ast.Node
}

// entries returns the keys of a mapping in the order of the file, and after them
// what merges (`<<`) add: as in YAML 1.1 the mapping's own keys come first, and
// of several merges the first.
func (d *decoder) entries(n ast.Node, at Place, what string, depth int) []entry {
	d.count(at, depth)
	var values []*ast.MappingValueNode
	switch v := n.(type) {
	case *ast.MappingNode:
		values = v.Values
	case *ast.MappingValueNode:
		values = []*ast.MappingValueNode{v}
	default:
		d.fail(at, "must be %s, found %s", what, scalarOf(n))
	}
	var own, merged []entry
	known := make(map[string]Place, len(values))
	for _, v := range values {
		if _, merge := v.Key.(*ast.MergeKeyNode); merge {
			merged = append(merged, d.merge(v.Value, at.Pointer, depth+1)...)
			continue
		}
		key := d.key(v.Key, at.Pointer)
		e := entry{place(tokenOf(v.Key), under(at.Pointer, key)), key, v.Value}
		if first, ok := known[key]; ok {
			d.fail(e.Place, "is duplicated; the first one is at %d:%d", first.Line, first.Column)
		}
		known[key] = e.Place
		own = append(own, e)
	}
	for _, e := range merged {
		if _, ok := known[e.key]; !ok {
			known[e.key] = e.Place
			own = append(own, e)
		}
	}
	return own
}

// merge returns the entries of the mapping, or of each mapping of the list, behind
// `<<`. Their pointers are below the mapping that they are merged into.
func (d *decoder) merge(n ast.Node, pointer string, depth int) (entries []entry) {
	n = d.target(n, pointer)
	values := []ast.Node{n}
	if list, ok := n.(*ast.SequenceNode); ok {
		values = list.Values
	}
	for _, v := range values {
		v = d.target(v, pointer)
		at := place(tokenOf(v), pointer)
		if scalarOf(v).kind != mapping {
			d.fail(at, "<< takes a mapping or a list of mappings")
		}
		for _, e := range d.entries(v, at, "a mapping", depth+1) {
			d.count(at, depth) // also those that are overridden: one alias can repeat thousands
			entries = append(entries, e)
		}
	}
	return entries
}

// maxKey is above every id and name, so that those get their own message.
const maxKey = 1024

// key returns a key as it is spelled: 42 and true are ids like any other.
func (d *decoder) key(k ast.Node, pointer string) string {
	at := place(tokenOf(k), pointer)
	k = d.target(k, pointer)
	spelled := ""
	switch v := k.(type) {
	case *ast.StringNode:
		spelled = v.Value
	case *ast.IntegerNode, *ast.FloatNode, *ast.BoolNode, *ast.NullNode, *ast.InfinityNode, *ast.NanNode:
		spelled = strings.TrimSpace(k.GetToken().Value)
	default:
		d.fail(at, "a key must be text on one line")
	}
	if len(spelled) > maxKey {
		d.fail(at, "a key has at most %d bytes, %q has %d", maxKey, quota.Clip(spelled), len(spelled))
	}
	return spelled
}

// target follows anchors and aliases, and keeps the names of the anchors.
func (d *decoder) target(n ast.Node, pointer string) ast.Node {
	switch v := n.(type) {
	case *ast.MappingKeyNode:
		return d.target(v.Value, pointer)
	case *ast.AliasNode:
		name := v.Value.GetToken().Value
		target, ok := d.anchors[name]
		if !ok {
			d.fail(place(v.GetToken(), pointer), "alias *%s has no anchor &%s before it", quota.Clip(name), quota.Clip(name))
		}
		return target
	case *ast.AnchorNode:
		name, target := v.Name.GetToken().Value, d.target(v.Value, pointer)
		if other, ok := d.anchors[name]; ok && other != target {
			d.fail(place(v.GetToken(), pointer), "anchor &%s is duplicated", quota.Clip(name))
		}
		d.anchors[name] = target
		return target
	}
	return n
}
