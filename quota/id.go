package quota

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// MaxID is the largest number of bytes in a tenant id or a dimension value.
const MaxID = 256

// MaxName is the largest number of bytes in the name of a policy, a limit, a
// dimension or a route.
const MaxName = 63

// ValidID accepts 1–256 bytes of printable ASCII without space or braces, so
// that "auth0|x" and "a+b@c" work, an id can never end a Redis hash tag, and
// nothing that reaches a log or a header can break a line.
func ValidID(id string) error {
	if id == "" {
		return errors.New("must not be empty")
	}
	if len(id) > MaxID {
		return fmt.Errorf("must be at most %d bytes, has %d", MaxID, len(id))
	}
	for i := range len(id) {
		if c := id[i]; c <= ' ' || c > '~' || c == '{' || c == '}' {
			return fmt.Errorf("must be printable ASCII without space or braces, byte %d is %q", i, c)
		}
	}
	return nil
}

// ValidName accepts [a-z0-9][a-z0-9_-]{0,62}: what names in topology.yaml look like.
func ValidName(name string) error {
	if name == "" || len(name) > MaxName {
		return fmt.Errorf("a name has 1 to %d characters, %q has %d", MaxName, Clip(name), len(name))
	}
	for i := range len(name) {
		c := name[i]
		letter := c >= 'a' && c <= 'z' || c >= '0' && c <= '9'
		if !letter && (i == 0 || c != '_' && c != '-') {
			return fmt.Errorf("a name is of a-z, 0-9, _ and - and begins with a letter or digit, %q does not", Clip(name))
		}
	}
	return nil
}

// Dimension is one property of a request that limits may count by: user, ip, route.
type Dimension struct {
	Name  string // a valid name
	Value string // a valid id
}

// Dimensions are those of one request, sorted by name and unique (see Sort).
type Dimensions []Dimension

// Sort orders the dimensions by name, as every function here expects them, and
// reports the first duplicated name.
func (ds Dimensions) Sort() (twice string, ok bool) {
	slices.SortFunc(ds, func(a, b Dimension) int { return strings.Compare(a.Name, b.Name) })
	for i := 1; i < len(ds); i++ {
		if ds[i].Name == ds[i-1].Name {
			return ds[i].Name, false
		}
	}
	return "", true
}

// Value returns the value of a dimension and whether the request has it.
func (ds Dimensions) Value(name string) (string, bool) {
	for i := range ds {
		if ds[i].Name == name {
			return ds[i].Value, true
		}
	}
	return "", false
}
