package region

import (
	"bytes"
	"errors"
	"fmt"
	"unicode/utf8"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/lexer"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"
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
func (d *decoder) document(src []byte) (body ast.Node) {
	top := Place{Line: 1, Column: 1}
	if len(src) > MaxBytes {
		d.fail(top, "the file has %d bytes, and at most %d are read", len(src), MaxBytes)
	}
	src = bytes.TrimPrefix(src, []byte("\ufeff"))
	if !utf8.Valid(src) {
		at := 0
		for r, size := utf8.DecodeRune(src); r != utf8.RuneError || size != 1; r, size = utf8.DecodeRune(src[at:]) {
			at += size
		}
		line := src[bytes.LastIndexByte(src[:at], '\n')+1 : at]
		d.fail(Place{Line: 1 + bytes.Count(src[:at], []byte("\n")), Column: 1 + utf8.RuneCount(line)}, "is not UTF-8: byte 0x%02x", src[at])
	}
	tokens := lexer.Tokenize(string(src))
	d.bound(tokens)
	file, err := parse(tokens)
	if syntax := (*yaml.SyntaxError)(nil); errors.As(err, &syntax) {
		d.fail(place(syntax.Token, ""), "is not YAML: %s", visible(syntax.Message))
	} else if err != nil {
		d.fail(top, "is not YAML: %v", err)
	}
	for _, doc := range file.Docs {
		if _, directive := doc.Body.(*ast.DirectiveNode); directive || doc.Body == nil {
			continue
		}
		if body != nil {
			d.fail(place(tokenOf(doc.Body), ""), "a second document begins; the file is one document")
		}
		body = doc.Body
	}
	if body == nil {
		d.fail(top, "the file is empty")
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
func (d *decoder) bound(tokens token.Tokens) {
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
			d.fail(place(tk, ""), "nested deeper than %d levels", MaxDepth)
		}
		if marks > MaxEntries {
			d.fail(place(tk, ""), "the file holds more than %d keys and list items", MaxEntries)
		}
	}
}

// count bounds what a file can have decoded.
func (d *decoder) count(at Place, depth int) {
	at.Pointer = ""
	if d.values++; d.values > MaxValues {
		d.fail(at, "the file holds more than %d values, aliases followed", MaxValues)
	}
	if depth > MaxDepth {
		d.fail(at, "nested deeper than %d levels", MaxDepth)
	}
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

// place survives a token without a position, which the parser returns for values
// that it made up.
func place(tk *token.Token, pointer string) Place {
	if tk == nil || tk.Position == nil {
		return Place{1, 1, pointer}
	}
	return Place{max(tk.Position.Line, 1), max(tk.Position.Column, 1), pointer}
}
