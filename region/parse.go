package region

import (
	_ "embed"
	"fmt"

	"github.com/regiond/regiond/quota"
)

//go:embed default.yaml
var defaultSource []byte

// Parse reads a topology.yaml. The name is only for messages. The error is an
// *Invalid: the first mistake of shape (no YAML, an unknown or duplicate field,
// a wrong type) or else every mistake of value. Warnings come in the order of
// the file, and only with a Topology.
func Parse(name string, src []byte) (*Topology, []Warning, error) {
	root, m := tree(src)
	if m != nil {
		return nil, nil, &Invalid{File: name, Mistakes: []Mistake{*m}}
	}
	r := &reader{said: map[string]bool{}}
	t := &Topology{}
	r.topology(root, t)
	if r.shape != nil {
		return nil, nil, &Invalid{File: name, Mistakes: []Mistake{*r.shape}}
	}
	mistakes := r.values
	for _, m := range t.Validate() {
		if !r.said[m.Pointer] {
			mistakes = append(mistakes, Mistake{root.nearest(m.Pointer), m.Detail})
		}
	}
	if len(mistakes) > 0 {
		sortMistakes(mistakes)
		return nil, nil, &Invalid{File: name, Mistakes: mistakes}
	}
	var warnings []Warning
	for _, w := range t.Warnings() {
		warnings = append(warnings, Warning{root.nearest(w.Pointer), w.Detail})
	}
	sortWarnings(warnings)
	return t, warnings, nil
}

func tree(src []byte) (*node, *Mistake) {
	body, m := document(src)
	if m != nil {
		return nil, m
	}
	return build(body)
}

// Default is what runs without a file: one region `local` on loopback that
// keeps its counts in memory. It is parsed anew each time, so the caller owns it.
func Default() *Topology {
	t, _, err := Parse("default.yaml", defaultSource)
	if err != nil {
		panic(fmt.Sprintf("region: the embedded topology is broken: %v", err))
	}
	return t
}

// findings collects mistakes and warnings by pointer.
type findings []quota.FieldError

func (fs *findings) add(pointer, format string, args ...any) {
	*fs = append(*fs, quota.FieldError{Pointer: pointer, Detail: fmt.Sprintf(format, args...)})
}
