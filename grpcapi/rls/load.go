package rls

import (
	"crypto/sha256"
	"errors"
	"fmt"

	"github.com/regiond/regiond/internal/base/files"
	"github.com/regiond/regiond/quota"
	"github.com/regiond/regiond/region"
)

// Load reads a topology and the files of its domains. What warn says, if it is any, is among the warnings. The error is a
// *region.Invalid for mistakes in any of them; where the mistakes are in a domain's file, the topology is returned too, since
// it names that file.
func Load(name string, warn func(*region.Topology) []quota.FieldError) (*region.Topology, []region.Problem, error) {
	top, warnings, err := region.Load(name, warn)
	if err != nil {
		return nil, nil, err
	}
	invalid := &region.Invalid{File: name}
	policies := map[string]string{}
	for i := range top.Policies {
		policies[top.Policies[i].Name] = "policy"
	}
	for i := range top.RLS.Domains {
		d := &top.RLS.Domains[i]
		sources, sums := make([]Source, 0, len(d.Files)), []byte(nil)
		for _, path := range d.Paths(name) {
			text, err := files.Read(path)
			if err != nil {
				return top, nil, fmt.Errorf("domain %s: %w", d.Name, err)
			}
			sources = append(sources, Source{path, text})
			d.Sum = sha256.Sum256(text)
			sums = append(sums, d.Sum[:]...)
		}
		if len(sources) > 1 {
			d.Sum = sha256.Sum256(sums)
		}
		compiled, mistakes, differences := Compile(d, sources...)
		invalid.Problems = append(invalid.Problems, mistakes...)
		warnings = append(warnings, differences...)
		if compiled == nil {
			continue
		}
		if other := policies[compiled.policy.Name]; other != "" {
			return top, nil, fmt.Errorf("domain %s: its policy is %s, as that of %s", d.Name, compiled.policy.Name, other)
		}
		policies[compiled.policy.Name] = "domain " + d.Name
		d.Rules = compiled
	}
	if len(invalid.Problems) > 0 {
		return top, nil, invalid
	}
	return top, warnings, nil
}

// Domains are those of a topology that Load has read, by name.
func Domains(top *region.Topology) (map[string]*Domain, error) {
	ds := make(map[string]*Domain, len(top.RLS.Domains))
	for i := range top.RLS.Domains {
		d, ok := top.RLS.Domains[i].Rules.(*Domain)
		if !ok {
			return nil, errors.New("the file of domain " + top.RLS.Domains[i].Name + " has not been read")
		}
		ds[d.Name] = d
	}
	return ds, nil
}
