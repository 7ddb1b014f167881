package region

import (
	"errors"
	"strconv"
	"strings"

	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/token"
)

// kind is what a YAML value is before the schema says what it should be. The
// words complete "must be …, found …".
type kind string

const (
	mapping  kind = "a mapping"
	sequence kind = "a list"
	text     kind = "text"
	number   kind = "the number"
	truth    kind = "the truth value"
	nothing  kind = "nothing"
)

// node is a YAML value with its place, aliases followed and merges done, so
// that the schema is read from something without surprises. Scalars keep their
// spelling: what 010 or 1e3 means is for the field to say.
type node struct {
	Place
	kind    kind
	text    string // of scalars
	entries []entry
	byKey   map[string]int // key → index into entries
	items   []*node
}

type entry struct {
	Place // of the key; Pointer is the value's
	key   string
	value *node
}

// nearest is the place of what a pointer names, or of the closest thing around
// it that exists.
func (n *node) nearest(pointer string) Place {
	here := n
	for segment := range strings.SplitSeq(strings.TrimPrefix(pointer, "/"), "/") {
		next := here.child(segment)
		if next == nil {
			break
		}
		here = next
	}
	return Place{here.Line, here.Column, pointer}
}

// child is what one segment of a pointer names, nil when it is not there.
func (n *node) child(segment string) *node {
	if n.kind == sequence {
		if i, err := strconv.Atoi(segment); err == nil && i >= 0 && i < len(n.items) {
			return n.items[i]
		}
		return nil
	}
	if i, ok := n.byKey[strings.NewReplacer("~1", "/", "~0", "~").Replace(segment)]; ok {
		return n.entries[i].value
	}
	return nil
}

func (n *node) add(e entry) {
	n.byKey[e.key] = len(n.entries)
	n.entries = append(n.entries, e)
}

// builder turns the parser's tree into nodes.
type builder struct {
	anchors map[string]ast.Node // those that are complete so far, by name
	values  int
}

// build makes the tree of a document.
func build(body ast.Node) (*node, *Mistake) {
	b := &builder{anchors: map[string]ast.Node{}}
	return b.node(body, "", 0)
}

func (b *builder) node(n ast.Node, pointer string, depth int) (*node, *Mistake) {
	if n == nil {
		return &node{Place: Place{1, 1, pointer}, kind: nothing}, nil
	}
	if b.values++; b.values > MaxValues {
		return nil, mistakeAt(tokenOf(n), "", "the file holds more than %d values, aliases followed", MaxValues)
	}
	if depth > MaxDepth {
		return nil, mistakeAt(tokenOf(n), "", "nested deeper than %d levels", MaxDepth)
	}
	switch v := n.(type) {
	case *ast.MappingNode:
		return b.mapping(v.Values, place(tokenOf(v), pointer), depth)
	case *ast.MappingValueNode:
		return b.mapping([]*ast.MappingValueNode{v}, place(tokenOf(v), pointer), depth)
	case *ast.SequenceNode:
		return b.sequence(v, pointer, depth)
	case *ast.AnchorNode:
		return b.anchored(v, pointer, depth)
	case *ast.AliasNode:
		target, m := b.follow(v, pointer)
		if m != nil {
			return nil, m
		}
		return b.node(target, pointer, depth+1)
	case *ast.TagNode:
		return nil, mistakeAt(v.GetToken(), pointer, "tags such as %s have no use here; write the value alone", clip(v.Start.Value))
	}
	return scalar(n, pointer)
}

// scalar keeps the spelling of a value and the parser's opinion of its kind.
func scalar(n ast.Node, pointer string) (*node, *Mistake) {
	tk := n.GetToken()
	at := place(tk, pointer)
	switch v := n.(type) {
	case *ast.StringNode:
		return &node{Place: at, kind: textOrNumber(v), text: v.Value}, nil
	case *ast.LiteralNode:
		return &node{Place: at, kind: text, text: v.Value.Value}, nil
	case *ast.IntegerNode, *ast.FloatNode, *ast.InfinityNode, *ast.NanNode:
		return &node{Place: at, kind: number, text: strings.TrimSpace(tk.Value)}, nil
	case *ast.BoolNode:
		return &node{Place: at, kind: truth, text: v.String()}, nil
	case *ast.NullNode:
		return &node{Place: at, kind: nothing}, nil
	}
	return nil, mistakeAt(tk, pointer, "%s has no use here", n.Type())
}

// textOrNumber knows the numbers that the parser takes for text because they do
// not fit 64 bits or have an exponent.
func textOrNumber(v *ast.StringNode) kind {
	if _, err := strconv.ParseFloat(v.Value, 64); v.Token.Type == token.StringType && startsAsNumber(v.Value) &&
		(err == nil || errors.Is(err, strconv.ErrRange)) {
		return number
	}
	return text
}

func startsAsNumber(s string) bool {
	return s != "" && strings.IndexByte("+-0123456789", s[0]) >= 0
}

func (b *builder) sequence(v *ast.SequenceNode, pointer string, depth int) (*node, *Mistake) {
	n := &node{Place: place(v.Start, pointer), kind: sequence, items: make([]*node, 0, len(v.Values))}
	for i, value := range v.Values {
		built, m := b.node(value, item(pointer, i), depth+1)
		if m != nil {
			return nil, m
		}
		n.items = append(n.items, built)
	}
	return n, nil
}

// mapping refuses a key that stands twice. A merge (`<<`) adds what the mapping
// itself does not say, as YAML 1.1 had it; among several, the first one wins.
func (b *builder) mapping(values []*ast.MappingValueNode, at Place, depth int) (*node, *Mistake) {
	n := &node{Place: at, kind: mapping, byKey: make(map[string]int, len(values))}
	var merged []entry
	for _, value := range values {
		if _, merge := value.Key.(*ast.MergeKeyNode); merge {
			more, m := b.merge(value.Value, at.Pointer, depth+1)
			if m != nil {
				return nil, m
			}
			merged = append(merged, more...)
			continue
		}
		e, m := b.entry(value, at.Pointer, depth)
		if m != nil {
			return nil, m
		}
		if first, twice := n.byKey[e.key]; twice {
			f := n.entries[first]
			return nil, &Mistake{e.Place, "stands twice; the first one is at " + f.lineColumn()}
		}
		n.add(e)
	}
	for _, e := range merged {
		if _, said := n.byKey[e.key]; !said {
			n.add(e)
		}
	}
	return n, nil
}

func (b *builder) entry(v *ast.MappingValueNode, pointer string, depth int) (entry, *Mistake) {
	key, m := b.key(v.Key, pointer)
	if m != nil {
		return entry{}, m
	}
	below := under(pointer, key)
	value, m := b.node(v.Value, below, depth+1)
	if m != nil {
		return entry{}, m
	}
	return entry{Place: place(tokenOf(v.Key), below), key: key, value: value}, nil
}

// merge returns the entries of the mapping, or of each mapping of the list, that
// stands behind `<<`. They are built under the pointer of the mapping that takes
// them in, for that is where their fields are read.
func (b *builder) merge(v ast.Node, pointer string, depth int) ([]entry, *Mistake) {
	target, m := b.follow(v, pointer)
	if m != nil {
		return nil, m
	}
	values := []ast.Node{target}
	if list, ok := target.(*ast.SequenceNode); ok {
		values = list.Values
	}
	var entries []entry
	for _, value := range values {
		built, m := b.node(value, pointer, depth+1)
		if m != nil {
			return nil, m
		}
		if built.kind != mapping {
			return nil, &Mistake{built.Place, "<< takes a mapping or a list of mappings"}
		}
		entries = append(entries, built.entries...)
	}
	return entries, nil
}

// key gives a key as it is spelled: 42 and true are ids like any other.
func (b *builder) key(k ast.Node, pointer string) (string, *Mistake) {
	k, m := b.follow(k, pointer)
	if m != nil {
		return "", m
	}
	var spelled string
	switch v := k.(type) {
	case *ast.StringNode:
		spelled = v.Value
	case *ast.IntegerNode, *ast.FloatNode, *ast.BoolNode, *ast.NullNode, *ast.InfinityNode, *ast.NanNode:
		spelled = strings.TrimSpace(k.GetToken().Value)
	default:
		return "", mistakeAt(tokenOf(k), pointer, "a key must be text on one line")
	}
	if len(spelled) > maxKey {
		return "", mistakeAt(k.GetToken(), pointer, "a key has at most %d bytes, %q has %d", maxKey, clip(spelled), len(spelled))
	}
	return spelled, nil
}

// maxKey is above every id and name, so that those get their own message.
const maxKey = 1024

// anchored builds a value and then names it, so that it cannot contain itself.
func (b *builder) anchored(v *ast.AnchorNode, pointer string, depth int) (*node, *Mistake) {
	built, m := b.node(v.Value, pointer, depth+1)
	if m != nil {
		return nil, m
	}
	_, m = b.follow(v, pointer)
	return built, m
}

// follow goes through anchors and aliases to what they stand for, and keeps the
// names of the anchors it meets.
func (b *builder) follow(n ast.Node, pointer string) (ast.Node, *Mistake) {
	switch v := n.(type) {
	case *ast.MappingKeyNode:
		return b.follow(v.Value, pointer)
	case *ast.AliasNode:
		name := v.Value.GetToken().Value
		if target, ok := b.anchors[name]; ok {
			return target, nil
		}
		return nil, mistakeAt(v.GetToken(), pointer, "alias *%s has no anchor &%s before it", clip(name), clip(name))
	case *ast.AnchorNode:
		target, m := b.follow(v.Value, pointer)
		if m != nil {
			return nil, m
		}
		name := v.Name.GetToken().Value
		if other, ok := b.anchors[name]; ok && other != target {
			return nil, mistakeAt(v.GetToken(), pointer, "anchor &%s stands twice", clip(name))
		}
		b.anchors[name] = target
		return target, nil
	}
	return n, nil
}

// tokenOf is where a reader sees a value begin; of a mapping without a bracket
// that is its first key, where the parser has the colon after it.
func tokenOf(n ast.Node) *token.Token {
	switch v := n.(type) {
	case nil:
		return nil
	case *ast.MappingNode:
		if v.IsFlowStyle || len(v.Values) == 0 {
			return v.Start
		}
		return tokenOf(v.Values[0].Key)
	case *ast.MappingValueNode:
		return tokenOf(v.Key)
	}
	return n.GetToken()
}
