package input

import (
	"fmt"
	"strconv"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/regiond/regiond/quota"
)

// Item is one element of a batch: what it asks for, a Request or a Claim; or what is wrong with it.
type Item struct {
	Request quota.Request
	Claim   quota.Claim
	Errs    []quota.FieldError
}

// Checks reads a body of checks, and so on. They return what is wrong with the body; what is wrong with one
// element is in its item.
func Checks(body []byte) ([]Item, []quota.FieldError) {
	b := struct {
		All elements `json:"checks"`
	}{elements{what: "checks"}}
	return batch(body, &b, &b.All, ofRequest(Check))
}

// Reservations is as Checks.
func Reservations(body []byte) ([]Item, []quota.FieldError) {
	b := struct {
		All elements `json:"reservations"`
	}{elements{what: "reservations"}}
	return batch(body, &b, &b.All, ofRequest(Reserve))
}

// Settlements is as Checks.
func Settlements(body []byte) ([]Item, []quota.FieldError) {
	b := struct {
		All elements `json:"settlements"`
	}{elements{what: "settlements"}}
	return batch(body, &b, &b.All, ofClaim(Settle))
}

// Extensions is as Checks.
func Extensions(body []byte) ([]Item, []quota.FieldError) {
	b := struct {
		All elements `json:"extensions"`
	}{elements{what: "extensions"}}
	return batch(body, &b, &b.All, ofClaim(Extend))
}

// elements are those of a batch, unread.
type elements struct {
	what  string // the name of the member that has them
	first []span // MaxBatch at most
	n     int
	sent  bool
}

type span struct{ from, to int64 } // of a body

// UnmarshalJSONFrom implements json.UnmarshalerFrom. What is too much is counted, and takes no memory.
func (e *elements) UnmarshalJSONFrom(d *jsontext.Decoder) error {
	if e.sent {
		return rule(duplicated)
	}
	e.sent = true
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

func batch(body []byte, into any, all *elements, read func(body []byte, base string) Item) ([]Item, []quota.FieldError) {
	// read finds names that are there twice; here they would take memory.
	if wrong := decode(body, into, all.what, jsontext.AllowDuplicateNames(true)); wrong != nil {
		return nil, wrong
	}
	if all.n == 0 || all.n > MaxBatch {
		return nil, []quota.FieldError{{Pointer: "/" + all.what, Detail: fmt.Sprintf("must have 1 to %d %s, has %d", MaxBatch, all.what, all.n)}}
	}
	items := make([]Item, all.n)
	for i, at := range all.first {
		items[i] = read(body[at.from:at.to], "/"+all.what+"/"+strconv.Itoa(i))
	}
	return items, nil
}

func ofRequest(read func([]byte, string) (quota.Request, []quota.FieldError)) func([]byte, string) Item {
	return func(body []byte, base string) (it Item) {
		it.Request, it.Errs = read(body, base)
		return it
	}
}

func ofClaim(read func([]byte, string) (quota.Claim, []quota.FieldError)) func([]byte, string) Item {
	return func(body []byte, base string) (it Item) {
		it.Claim, it.Errs = read(body, base)
		return it
	}
}
