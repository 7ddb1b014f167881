package input

import (
	"fmt"
	"strconv"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/regiond/regiond/quota"
)

// Batch reads a body whose one member has elements, each of which read reads. It returns what is wrong with the body; what is wrong with
// one element is in its item.
func Batch(body []byte, member string, read func(body []byte, base string) Item) ([]Item, []quota.FieldError) {
	all := elements{what: member}
	// read finds names that are there twice; here they would take memory.
	if wrong := decode(body, &all, member, jsontext.AllowDuplicateNames(true)); wrong != nil {
		return nil, wrong
	}
	if all.n == 0 || all.n > MaxBatch {
		return nil, []quota.FieldError{{Pointer: "/" + member, Detail: fmt.Sprintf("must have 1 to %d %s, has %d", MaxBatch, member, all.n)}}
	}
	items := make([]Item, all.n)
	for i, at := range all.first {
		items[i] = read(body[at.from:at.to], "/"+member+"/"+strconv.Itoa(i))
	}
	return items, nil
}

// elements are those of a batch, unread.
type elements struct {
	what  string // the name of the member that has them
	first []span // MaxBatch at most
	n     int
}

type span struct{ from, to int64 } // of a body

// UnmarshalJSONFrom implements json.UnmarshalerFrom.
func (e *elements) UnmarshalJSONFrom(d *jsontext.Decoder) error {
	token, err := d.ReadToken()
	if kind := token.Kind(); err == nil && kind != '{' {
		return rule(noObject(e.what, kind).Detail)
	}
	for sent := false; err == nil && d.PeekKind() != '}'; sent = true {
		switch token, err = d.ReadToken(); {
		case err != nil:
		case token.String() != e.what:
			err = json.ErrUnknownName
		case sent:
			err = rule(duplicated)
		default:
			err = e.read(d)
		}
	}
	if err == nil {
		_, err = d.ReadToken()
	}
	return err
}

// read finds the elements. What is too much is counted, and takes no memory.
func (e *elements) read(d *jsontext.Decoder) error {
	if err := mustBe(d, '[', "an array of 1 to 100 "+e.what); err != nil {
		return err
	}
	_, err := d.ReadToken()
	for ; err == nil && d.PeekKind() != ']'; e.n++ {
		if e.n >= MaxBatch {
			err = d.SkipValue()
			continue
		}
		var v jsontext.Value
		v, err = d.ReadValue()
		to := d.InputOffset()
		e.first = append(e.first, span{to - int64(len(v)), to})
	}
	if err == nil {
		_, err = d.ReadToken()
	}
	return err
}
