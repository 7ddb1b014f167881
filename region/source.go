package region

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/lexer"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"

	"github.com/regiond/regiond/quota"
)

// Bounds of a file. The YAML parser is recursive and slower than linear, so depth
// and number are checked before it runs.
const (
	// MaxBytes bounds a topology.
	MaxBytes = 1 << 20
	// maxEntries bounds its keys and list items, which come to about thirty
	// thousand listed tenants. With more, give them policies by name in each check.
	maxEntries = 1 << 16
	// maxDepth bounds nesting; the schema needs eight levels.
	maxDepth = 32
	// maxFileValues bounds what a file holds once its aliases are followed, which a
	// few lines can otherwise make billions.
	maxFileValues = 1 << 18
)

// document reads src, whose only YAML document it returns.
func (s *Source) document(src []byte) *value {
	var body ast.Node
	top := Place{Line: 1, Column: 1}
	if len(src) > MaxBytes {
		s.fail(top, "the file has %d bytes, and at most %d are read", len(src), MaxBytes)
	}
	src = bytes.TrimPrefix(src, []byte("\ufeff"))
	if !utf8.Valid(src) {
		at := 0
		for r, size := utf8.DecodeRune(src); r != utf8.RuneError || size != 1; r, size = utf8.DecodeRune(src[at:]) {
			at += size
		}
		line := src[bytes.LastIndexByte(src[:at], '\n')+1 : at]
		s.fail(Place{1 + bytes.Count(src[:at], []byte("\n")), 1 + utf8.RuneCount(line), ""}, "is not UTF-8: byte 0x%02x", src[at])
	}
	tokens := lexer.Tokenize(string(src))
	s.bound(tokens)
	file, err := parse(tokens)
	if syntax := (*yaml.SyntaxError)(nil); errors.As(err, &syntax) {
		hint := ""
		if strings.Contains(syntax.Message, "\t") {
			hint = "; indent with spaces"
		}
		s.fail(place(syntax.Token), "is not YAML: %s%s", visible(syntax.Message), hint)
	} else if err != nil {
		s.fail(top, "is not YAML: %v", err)
	}
	for _, doc := range file.Docs {
		if _, directive := doc.Body.(*ast.DirectiveNode); directive || doc.Body == nil {
			continue
		}
		if body != nil {
			s.fail(place(tokenOf(doc.Body)), "a second document begins; the file is one document")
		}
		body = doc.Body
	}
	if body == nil {
		s.fail(top, "the file is empty")
	}
	return (&reader{Source: s, anchors: map[string]*value{}}).read(body)
}

// parse turns a panic of the parser into an error: a file that was saved half-way
// must not stop the process that watches it.
func parse(tokens token.Tokens) (file *ast.File, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("the parser gave up: %v", p)
		}
	}()
	return parser.Parse(tokens, 0, parser.AllowDuplicateMapKey())
}

// bound refuses what the parser would take long for. Depth is counted inside
// brackets and by dashes on one line; what is nested by indentation alone costs a
// column per level, so a file of MaxBytes holds too little of it to harm.
func (s *Source) bound(tokens token.Tokens) {
	brackets, dashes, marks, line := 0, 0, 0, 0
	for _, tk := range tokens {
		if tk.Position.Line != line {
			line, dashes = tk.Position.Line, 0
		}
		switch tk.Type {
		case token.SequenceStartType, token.MappingStartType:
			brackets++
		case token.SequenceEndType, token.MappingEndType:
			brackets--
		case token.SequenceEntryType, token.MappingKeyType:
			dashes++
			marks++
		case token.MappingValueType, token.DocumentHeaderType, token.DocumentEndType:
			marks++
		}
		if brackets > maxDepth || dashes > maxDepth {
			s.fail(place(tk), "nested deeper than %d levels", maxDepth)
		}
		if marks > maxEntries {
			s.fail(place(tk), "the file holds more than %d keys and list items", maxEntries)
		}
	}
}

// place survives a token without a position, which the parser returns for values
// that it made up.
func place(tk *token.Token) Place {
	if tk == nil || tk.Position == nil {
		return Place{1, 1, ""}
	}
	return Place{max(tk.Position.Line, 1), max(tk.Position.Column, 1), ""}
}

// tokenOf is where a reader sees a value begin; of a mapping without a bracket
// that is its first key, where the parser has the colon after it.
func tokenOf(n ast.Node) *token.Token {
	if n == nil {
		return nil
	}
	if m, ok := n.(*ast.MappingNode); ok && !m.IsFlowStyle && len(m.Values) > 0 {
		return tokenOf(m.Values[0].Key)
	}
	return n.GetToken()
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
	unknown  kind = "an alias of nothing"
)

// value is a value as the file has it, with anchors, aliases and merges resolved. All aliases
// of an anchor are one value, so it knows its line and column and not its pointer.
type value struct {
	at    Place
	kind  kind
	text  string // the spelling of a scalar
	keys  []entry
	items []*value
	// wrong is what is wrong with its form, with pointers below its own; lost says that something
	// in it cannot be read because of that.
	wrong []Problem
	lost  bool
}

type entry struct {
	at    Place // of the key
	key   string
	value *value
}

func (v *value) note(at Place, format string, args ...any) {
	v.wrong = append(v.wrong, Problem{Place: at, Detail: fmt.Sprintf(format, args...)})
}

func (v *value) String() string {
	switch v.kind {
	case text:
		if strings.Contains(v.text, ": ") {
			return fmt.Sprintf("text %q; is a comma or a line break missing in it?", quota.Clip(v.text))
		}
		return fmt.Sprintf("text %q", quota.Clip(v.text))
	case number, truth:
		return string(v.kind) + " " + quota.Clip(v.text)
	}
	return string(v.kind)
}

type reader struct {
	*Source
	anchors map[string]*value // those that are complete so far, so that none contains itself
}

func (r *reader) read(n ast.Node) *value {
	v := &value{at: place(tokenOf(n)), kind: nothing}
	defer r.enter(v.at)()
	switch n := n.(type) {
	case *ast.MappingKeyNode:
		return r.read(n.Value)
	case *ast.AnchorNode:
		name := n.Name.GetToken().Value
		v = r.read(n.Value)
		if r.anchors[name] != nil {
			v.note(place(n.GetToken()), "anchor &%s is duplicated", quota.Clip(name))
		}
		r.anchors[name] = v
	case *ast.AliasNode:
		name := n.Value.GetToken().Value
		if target := r.anchors[name]; target != nil {
			return target
		}
		v.kind, v.lost = unknown, true
		v.note(v.at, "alias *%s has no anchor &%s before it", quota.Clip(name), quota.Clip(name))
	case *ast.TagNode:
		tag := v.at
		v = r.read(n.Value)
		v.note(tag, "tags such as %s have no use here; write the value alone", quota.Clip(n.Start.Value))
	case *ast.MappingNode:
		v.kind = mapping
		r.entries(v, n)
	case *ast.SequenceNode:
		v.kind = sequence
		for _, own := range n.Values {
			v.items = append(v.items, r.read(own))
		}
	case *ast.StringNode:
		v.kind, v.text = text, n.Value
	case *ast.LiteralNode:
		v.kind, v.text = text, n.Value.Value
	case *ast.IntegerNode, *ast.FloatNode, *ast.InfinityNode, *ast.NanNode:
		v.kind, v.text = number, strings.TrimSpace(n.GetToken().Value)
	case *ast.BoolNode:
		v.kind, v.text = truth, n.String()
	}
	return v
}

// entries reads a mapping in the order of the file, and after its own keys what merges (`<<`)
// add: as in YAML 1.1 its own come first, and of several merges the first.
func (r *reader) entries(v *value, n *ast.MappingNode) {
	var merged []entry
	known := make(map[string]Place, len(n.Values))
	for _, m := range n.Values {
		if _, merge := m.Key.(*ast.MergeKeyNode); merge {
			merged = append(merged, r.merge(v, m.Value)...)
			continue
		}
		key, at, ok := r.key(v, m.Key)
		e := entry{at, key, r.read(m.Value)}
		if first, twice := known[key]; twice {
			at.Pointer = quota.Under("", key)
			v.note(at, "is duplicated; the first one is at %d:%d", first.Line, first.Column)
		} else if ok {
			v.keys = append(v.keys, e)
			known[key] = at
		}
	}
	for _, e := range merged {
		if _, ok := known[e.key]; !ok {
			known[e.key] = e.at
			v.keys = append(v.keys, e)
		}
	}
}

// merge returns the entries of the mapping, or of each mapping of the list, behind `<<`.
func (r *reader) merge(v *value, n ast.Node) (entries []entry) {
	from := r.read(n)
	list := []*value{from}
	if from.kind == sequence {
		list = from.items
	}
	for _, m := range list {
		switch v.wrong, v.lost = append(v.wrong, m.wrong...), v.lost || m.lost; m.kind {
		case unknown:
		case mapping:
			for range m.keys { // also those that are overridden: one alias can repeat thousands
				r.count(m.at)
			}
			entries = append(entries, m.keys...)
		default:
			v.note(m.at, "<< takes a mapping or a list of mappings")
		}
	}
	return entries
}

// maxKey is above every id and name, so that those get their own message.
const maxKey = 1024

// key returns a key as it is spelled: 42 and true are ids like any other. ok is false if it is none.
func (r *reader) key(v *value, n ast.Node) (key string, at Place, ok bool) {
	at = place(tokenOf(n))
	switch k := r.read(n); {
	case k.kind == unknown:
		v.wrong, v.lost = append(v.wrong, k.wrong...), true
	case k.kind == mapping || k.kind == sequence:
		v.note(at, "a key must be text on one line")
	case k.kind == nothing:
		return strings.TrimSpace(tokenOf(n).Value), at, true
	case len(k.text) > maxKey:
		r.fail(at, "a key has at most %d bytes, %q has %d", maxKey, quota.Clip(k.text), len(k.text))
	default:
		return k.text, at, true
	}
	return "", at, false
}
