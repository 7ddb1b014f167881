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

// What a file may be before anybody looks for meaning in it. The YAML parser is
// recursive and slower than linear, so depth and number are bounded before it
// runs.
const (
	// MaxBytes bounds a topology.
	MaxBytes = 1 << 20
	// MaxEntries bounds its keys and list items, which come to about thirty
	// thousand listed tenants. Whoever has more gives them policies by name in
	// each check.
	MaxEntries = 1 << 16
	// MaxDepth bounds nesting; the schema needs eight levels.
	MaxDepth = 32
	// MaxValues bounds what a file holds once its aliases are followed, which
	// a few lines can otherwise make billions.
	MaxValues = 1 << 18
)

// document parses src into the body of its only YAML document.
func document(src []byte) (ast.Node, *Problem) {
	if len(src) > MaxBytes {
		return nil, topMistake("the file has %d bytes, a topology at most %d", len(src), MaxBytes)
	}
	src = bytes.TrimPrefix(src, []byte("\ufeff"))
	if !utf8.Valid(src) {
		return nil, badByte(src)
	}
	tokens := lexer.Tokenize(string(src))
	if m := tooMuch(tokens); m != nil {
		return nil, m
	}
	file, err := parse(tokens)
	if err != nil {
		var syntax *yaml.SyntaxError
		if errors.As(err, &syntax) {
			return nil, mistakeAt(syntax.Token, "", "is not YAML: %s", visible(syntax.Message))
		}
		return nil, topMistake("is not YAML: %v", err)
	}
	return onlyBody(file)
}

// parse turns a panic of the parser into an error: a file that somebody saved
// half-way must not stop the process that watches it.
func parse(tokens token.Tokens) (file *ast.File, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("the parser gave up: %v", p)
		}
	}()
	return parser.Parse(tokens, 0, parser.AllowDuplicateMapKey())
}

func onlyBody(file *ast.File) (ast.Node, *Problem) {
	var body ast.Node
	for _, doc := range file.Docs {
		if doc.Body == nil {
			continue
		}
		if _, directive := doc.Body.(*ast.DirectiveNode); directive {
			continue
		}
		if body != nil {
			return nil, mistakeAt(tokenOf(doc.Body), "", "a second document begins; a topology is one document")
		}
		body = doc.Body
	}
	if body == nil {
		return nil, topMistake("the file is empty; a topology has at least regions, policies and tenants")
	}
	return body, nil
}

// tooMuch refuses what the parser would take long for. Depth is counted inside
// brackets and by dashes on one line; what is nested by indentation alone costs
// a column per level, so a file of MaxBytes holds too little of it to harm, and
// the tree, which is built next, refuses it.
func tooMuch(tokens token.Tokens) *Problem {
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
			return mistakeAt(tk, "", "nested deeper than %d levels", MaxDepth)
		}
		if marks > MaxEntries {
			return mistakeAt(tk, "", "the file holds more than %d keys and list items", MaxEntries)
		}
	}
	return nil
}

func badByte(src []byte) *Problem {
	at, line, column := 0, 1, 1
	for at < len(src) {
		r, size := utf8.DecodeRune(src[at:])
		if r == utf8.RuneError && size == 1 {
			break
		}
		if column++; r == '\n' {
			line, column = line+1, 1
		}
		at += size
	}
	return &Problem{Place{line, column, ""}, fmt.Sprintf("is not UTF-8: byte 0x%02x", src[at])}
}

func topMistake(format string, args ...any) *Problem {
	return &Problem{Place{1, 1, ""}, fmt.Sprintf(format, args...)}
}

func mistakeAt(tk *token.Token, pointer, format string, args ...any) *Problem {
	return &Problem{place(tk, pointer), fmt.Sprintf(format, args...)}
}
