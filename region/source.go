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
	// MaxEntries bounds its keys and list items, which come to about thirty
	// thousand listed tenants. With more, give them policies by name in each check.
	MaxEntries = 1 << 16
	// MaxDepth bounds nesting; the schema needs eight levels.
	MaxDepth = 32
	// MaxValues bounds what a file holds once its aliases are followed, which a
	// few lines can otherwise make billions.
	MaxValues = 1 << 18
)

// document parses src into the body of its only YAML document.
func (s *Source) document(src []byte) (body ast.Node) {
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
		s.fail(place(syntax.Token, ""), "is not YAML: %s%s", visible(syntax.Message), hint)
	} else if err != nil {
		s.fail(top, "is not YAML: %v", err)
	}
	for _, doc := range file.Docs {
		if _, directive := doc.Body.(*ast.DirectiveNode); directive || doc.Body == nil {
			continue
		}
		if body != nil {
			s.fail(place(tokenOf(doc.Body), ""), "a second document begins; the file is one document")
		}
		body = doc.Body
	}
	if body == nil {
		s.fail(top, "the file is empty")
	}
	return body
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
		if brackets > MaxDepth || dashes > MaxDepth {
			s.fail(place(tk, ""), "nested deeper than %d levels", MaxDepth)
		}
		if marks > MaxEntries {
			s.fail(place(tk, ""), "the file holds more than %d keys and list items", MaxEntries)
		}
	}
}

// count bounds what a file can have decoded.
func (s *Source) count(at Place) {
	at.Pointer = ""
	if s.values++; s.values > MaxValues {
		s.fail(at, "the file holds more than %d values, aliases followed", MaxValues)
	}
}

// enter begins what is nested one level deeper, and returns what ends it.
func (s *Source) enter(at Place) (leave func()) {
	if at.Pointer = ""; s.depth > MaxDepth {
		s.fail(at, "nested deeper than %d levels", MaxDepth)
	}
	s.depth++
	return func() { s.depth-- }
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

// place survives a token without a position, which the parser returns for values
// that it made up.
func place(tk *token.Token, pointer string) Place {
	if tk == nil || tk.Position == nil {
		return Place{1, 1, pointer}
	}
	return Place{max(tk.Position.Line, 1), max(tk.Position.Column, 1), pointer}
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

// found is a value as the file has it.
type found struct {
	Place
	node ast.Node
	kind kind
	text string // the spelling of a scalar
}

func (v found) String() string {
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

// find keeps the spelling of a value and the parser's opinion of its kind.
func find(n ast.Node, pointer string) found {
	v := found{place(tokenOf(n), pointer), n, nothing, ""}
	switch n := n.(type) {
	case *ast.MappingNode:
		v.kind = mapping
	case *ast.SequenceNode:
		v.kind = sequence
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

// entry is a key of a mapping and its value.
type entry struct {
	Place // of the key; Pointer is the value's
	key   string
	value ast.Node
}

// entries returns the keys of a mapping in the order of the file, and after them
// what merges (`<<`) add: as in YAML 1.1 the mapping's own keys come first, and
// of several merges the first.
func (s *Source) entries(v found, what string) (own []entry) {
	s.count(v.Place)
	m, ok := v.node.(*ast.MappingNode)
	if !ok {
		s.want(v, what)
		return nil
	}
	var merged []entry
	known := make(map[string]Place, len(m.Values))
	for _, n := range m.Values {
		if _, merge := n.Key.(*ast.MergeKeyNode); merge {
			merged = append(merged, s.merge(n.Value, v.Pointer)...)
			continue
		}
		key, at := s.key(n.Key, v.Pointer)
		if first, twice := known[key]; twice {
			s.note(at, "is duplicated; the first one is at %d:%d", first.Line, first.Column)
			s.value(n.Value, at.Pointer, new(any))
		} else if at.Pointer != v.Pointer { // it is a key
			own = append(own, entry{at, key, n.Value})
			known[key] = at
		}
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
func (s *Source) merge(n ast.Node, pointer string) (entries []entry) {
	defer s.enter(find(n, pointer).Place)()
	n = s.target(n, pointer)
	values := []ast.Node{n}
	if list, ok := n.(*ast.SequenceNode); ok {
		values = list.Values
	}
	for _, n := range values {
		v := find(s.target(n, pointer), pointer)
		switch {
		case v.node == nil: // an alias of nothing, which is noted
			continue
		case v.kind != mapping:
			s.note(v.Place, "<< takes a mapping or a list of mappings")
			continue
		}
		for _, e := range s.entries(v, "a mapping") {
			s.count(v.Place) // also those that are overridden: one alias can repeat thousands
			entries = append(entries, e)
		}
	}
	return entries
}

// maxKey is above every id and name, so that those get their own message.
const maxKey = 1024

// key returns a key as it is spelled: 42 and true are ids like any other. Its place has the pointer of the value, or of the
// mapping if it is no key.
func (s *Source) key(k ast.Node, pointer string) (string, Place) {
	at := place(tokenOf(k), pointer)
	v := find(s.target(k, pointer), pointer)
	switch {
	case v.node == nil: // an alias of nothing, which is noted
		return "", at
	case v.kind == mapping || v.kind == sequence:
		s.note(at, "a key must be text on one line")
		return "", at
	case v.kind == nothing:
		v.text = strings.TrimSpace(v.node.GetToken().Value)
	case len(v.text) > maxKey:
		s.fail(at, "a key has at most %d bytes, %q has %d", maxKey, quota.Clip(v.text), len(v.text))
	}
	at.Pointer = under(pointer, v.text)
	return v.text, at
}

// target follows anchors and aliases, and keeps the names of the anchors. It is nil for an alias of none.
func (s *Source) target(n ast.Node, pointer string) ast.Node {
	switch v := n.(type) {
	case *ast.MappingKeyNode:
		return s.target(v.Value, pointer)
	case *ast.AliasNode:
		name := v.Value.GetToken().Value
		target, ok := s.anchors[name]
		if !ok {
			s.note(place(v.GetToken(), pointer), "alias *%s has no anchor &%s before it", quota.Clip(name), quota.Clip(name))
			s.lost[pointer] = true
		}
		return target
	case *ast.AnchorNode:
		name, target := v.Name.GetToken().Value, s.target(v.Value, pointer)
		if other, ok := s.anchors[name]; ok && other != target {
			s.note(place(v.GetToken(), pointer), "anchor &%s is duplicated", quota.Clip(name))
		}
		s.anchors[name] = target
		return target
	}
	return n
}
