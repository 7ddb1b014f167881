package region_test

import (
	"bytes"
	"errors"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/regiond/regiond/region"
	"github.com/regiond/regiond/region/warnings"
)

// FuzzParse holds for every input: no panic; either a topology that obeys its
// own rules and has one hash, or mistakes that point into the file.
func FuzzParse(f *testing.F) {
	files, err := filepath.Glob("testdata/topology/*.yaml")
	if err != nil {
		f.Fatal(err)
	}
	for _, file := range append(files, "testdata/full.yaml", "default.yaml") {
		f.Add(read(f, file))
	}
	f.Fuzz(func(t *testing.T, src []byte) {
		top, places, err := region.Parse("f.yaml", src)
		if err != nil {
			mistakesPointIntoTheFile(t, src, err)
			return
		}
		if ms := top.Validate(); len(ms) > 0 {
			t.Fatalf("parsed, and yet: %v", ms)
		}
		again, placesAgain, err := region.Parse("f.yaml", src)
		if err != nil || again.Hash() != top.Hash() ||
			!cmp.Equal(places.Problems(warnings.Of(top)), placesAgain.Problems(warnings.Of(again))) {
			t.Fatalf("the same bytes gave %v, hash %s then %s", err, top.Hash(), again.Hash())
		}
		commented := append([]byte("# a comment\n"), bytes.TrimPrefix(src, []byte("\ufeff"))...)
		if third, _, err := region.Parse("f.yaml", commented); err == nil && third.Hash() != top.Hash() {
			t.Fatal("a comment changed the hash")
		}
	})
}

func mistakesPointIntoTheFile(t *testing.T, src []byte, err error) {
	var invalid *region.Invalid
	if !errors.As(err, &invalid) || len(invalid.Problems) == 0 {
		t.Fatalf("error %#v is not an *Invalid with mistakes", err)
	}
	lines := bytes.Count(src, []byte("\n")) + bytes.Count(src, []byte("\r")) + 1
	before := region.Problem{}
	for _, m := range invalid.Problems {
		if m.Line < 1 || m.Line > lines+1 || m.Column < 1 || m.Column > len(src)+2 || m.Detail == "" {
			t.Fatalf("mistake %+v is not in a file of %d lines", m, lines)
		}
		if m.Line < before.Line || m.Line == before.Line && m.Column < before.Column {
			t.Fatalf("mistake %+v comes before %+v", m, before)
		}
		before = m
	}
}
