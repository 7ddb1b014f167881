package httpapi

import (
	"bytes"
	"errors"
	"fmt"
	"io"
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

	// maxMistakes bounds what one request can make us write back.
	maxMistakes = 32
)

// decoder reads request bodies strictly and collects every mistake. It is
// reused; what it returns does not refer to it.
type decoder struct {
	json     *jsontext.Decoder
	src      bytes.Buffer
	base     string // pointer of the check being read: "" or "/checks/3"
	mistakes []quota.FieldError
	more     int // mistakes beyond maxMistakes

	// The strings of one check are gathered here and become one string, so that
	// a check costs one allocation whatever it carries, and a limiter that keeps
	// an id does not keep the body.
	text   []byte
	tenant span
	policy span
	dims   []dimSpan
	cost   int64
	name   []byte // the last member name, unquoted
}

type span struct{ from, to int }

type dimSpan struct{ name, value span }

func newDecoder() *decoder {
	d := &decoder{}
	d.json = jsontext.NewDecoder(&d.src)
	return d
}

// begin sets the decoder to a body, which it does not modify.
func (d *decoder) begin(body []byte) {
	d.src = *bytes.NewBuffer(body)
	// Duplicates are found by hand: the tokenizer would stop at the first.
	d.json.Reset(&d.src, jsontext.AllowDuplicateNames(true))
	d.base, d.mistakes, d.more = "", nil, 0
}

func (d *decoder) wrong(pointer, format string, args ...any) {
	if len(d.mistakes) >= maxMistakes {
		d.more++
		return
	}
	d.mistakes = append(d.mistakes, quota.FieldError{Pointer: d.base + pointer, Detail: fmt.Sprintf(format, args...)})
}

// found returns the mistakes, with a last line for those that were too many.
func (d *decoder) found() []quota.FieldError {
	ms := d.mistakes
	if d.more > 0 {
		ms = append(ms, quota.FieldError{Pointer: d.base, Detail: fmt.Sprintf("and %d more mistakes", d.more)})
	}
	d.mistakes, d.more = nil, 0
	return ms
}

// check reads a body that is one check.
func (d *decoder) check(body []byte) (quota.Request, []quota.FieldError) {
	d.begin(body)
	err := d.readCheck()
	if err == nil {
		err = d.end()
	}
	if err != nil {
		d.syntax(err)
		return quota.Request{}, d.found()
	}
	return d.request()
}

// item is one check of a batch: a request, or what is wrong with it.
type item struct {
	request  quota.Request
	mistakes []quota.FieldError
}

// batch reads a body of checks. Mistakes of the envelope are returned, those of
// one check stand in its item.
func (d *decoder) batch(body []byte) ([]item, []quota.FieldError) {
	d.begin(body)
	var items []item
	var envelope []quota.FieldError
	seen := false
	opened, err := d.object("", "a JSON object with the member checks", func() error {
		if string(d.name) != "checks" {
			d.unknown("", "checks")
			return d.json.SkipValue()
		}
		if seen {
			d.wrong("/checks", "stands twice")
			return d.json.SkipValue()
		}
		seen = true
		envelope = append(envelope, d.found()...)
		var err error
		items, err = d.checks()
		return err
	})
	if err == nil {
		err = d.end()
	}
	if err != nil {
		d.syntax(err)
	} else if opened && !seen {
		d.wrong("/checks", "is required: an array of 1 to %d checks", MaxChecks)
	}
	return items, append(envelope, d.found()...)
}

func (d *decoder) checks() ([]item, error) {
	if d.json.PeekKind() != '[' {
		return nil, d.skip("/checks", "an array of 1 to 100 checks")
	}
	if _, err := d.json.ReadToken(); err != nil {
		return nil, err
	}
	items := make([]item, 0, 8)
	n := 0
	for ; d.json.PeekKind() != ']'; n++ {
		if n >= MaxChecks {
			if err := d.json.SkipValue(); err != nil {
				return nil, err
			}
			continue
		}
		d.base = "/checks/" + strconv.Itoa(n)
		if err := d.readCheck(); err != nil {
			d.mistakes, d.base = nil, ""
			return nil, err
		}
		var it item
		it.request, it.mistakes = d.request()
		items = append(items, it)
	}
	d.base = ""
	if n == 0 || n > MaxChecks {
		d.wrong("/checks", "must have 1 to %d checks, has %d", MaxChecks, n)
	}
	_, err := d.json.ReadToken()
	return items, err
}

// end makes sure that nothing follows the value.
func (d *decoder) end() error {
	if _, err := d.json.ReadToken(); !errors.Is(err, io.EOF) {
		return errors.New("the body must hold one JSON value and nothing after it")
	}
	return nil
}

// syntax records what made the body unreadable.
func (d *decoder) syntax(err error) {
	d.base = ""
	var s *jsontext.SyntacticError
	switch {
	case errors.Is(err, io.EOF) && d.json.InputOffset() == 0:
		d.wrong("", "the body is empty, it must hold a JSON object")
	case errors.As(err, &s):
		d.wrong(clip(string(s.JSONPointer)), "is not JSON at byte %d: %s", s.ByteOffset, clip(s.Err.Error()))
	case errors.Is(err, io.ErrUnexpectedEOF):
		d.wrong("", "is not JSON: it ends in the middle")
	default:
		d.wrong("", "%v", err)
	}
}

// object reads an object and calls member with d.name set to each name; member
// must consume the value. A value that is no object is skipped with a mistake
// at pointer that names what was wanted, and opened is false.
func (d *decoder) object(pointer, wanted string, member func() error) (opened bool, err error) {
	if d.json.PeekKind() != '{' {
		return false, d.skip(pointer, wanted)
	}
	if _, err := d.json.ReadToken(); err != nil {
		return false, err
	}
	for d.json.PeekKind() != '}' {
		quoted, err := d.json.ReadValue()
		if err != nil {
			return true, err
		}
		if d.name, err = jsontext.AppendUnquote(d.name[:0], quoted); err != nil {
			return true, err
		}
		if err := member(); err != nil {
			return true, err
		}
	}
	_, err = d.json.ReadToken()
	return true, err
}

// skip passes over a value of the wrong type.
func (d *decoder) skip(pointer, wanted string) error {
	kind := d.json.PeekKind()
	if err := d.json.SkipValue(); err != nil {
		return err
	}
	d.wrong(pointer, "must be %s, is %s", wanted, kindName(kind))
	return nil
}

// unknown records a member that is not one of the known.
func (d *decoder) unknown(pointer, known string) {
	d.wrong(pointer+"/"+escapeToken(d.name), "is not a member here; there are: %s", known)
}

// escapeToken makes a reference token of a JSON pointer (RFC 6901), cut short
// when it is too long to be a mistyped name.
func escapeToken(name []byte) string {
	return strings.NewReplacer("~", "~0", "/", "~1").Replace(clip(string(name)))
}

// clip keeps a message about something huge small.
func clip(s string) string {
	const most = 80
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most], "") + "…"
}

func kindName(k jsontext.Kind) string {
	switch k {
	case 'n':
		return "null"
	case 't', 'f':
		return "a boolean"
	case '"':
		return "a string"
	case '0':
		return "a number"
	case '[':
		return "an array"
	case '{':
		return "an object"
	}
	return "not JSON"
}
