// Package keyfile reads the secrets that all processes of a deployment share. It derives
// nothing from them: who uses one does, under a label of its own.
package keyfile

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"strings"

	"github.com/regiond/regiond/internal/base/files"
)

// Keys are the contents of a key file. The zero Keys are those of a deployment without one.
type Keys struct {
	// Shared authenticate and encrypt what processes send each other: the first is used, both
	// are accepted. There are one or two.
	Shared [][]byte
	// Partitions makes the ids of partitions, and outlasts Shared: what regions know of each
	// other's usage is worth nothing under another one.
	Partitions []byte
}

// partitions begins the line that has Keys.Partitions.
const partitions = "partitions "

// Read reads a key file: one line with the key in use, perhaps one with another key that is
// accepted too, and the line "partitions KEY". Each key is base64 (standard alphabet, with
// padding) of 16, 24 or 32 bytes. Partitions is that of a single key unless it is named. Its
// errors contain nothing of a key.
func Read(file string) (*Keys, error) {
	text, err := files.Read(file)
	if err != nil {
		return nil, fmt.Errorf("read keys: %w", err)
	}
	k, err := parse(string(text))
	if err != nil {
		return nil, fmt.Errorf("keys in %s: %w", file, err)
	}
	return k, nil
}

func parse(text string) (*Keys, error) {
	k := &Keys{}
	for i, line := range strings.Split(strings.TrimSpace(text), "\n") {
		line, forPartitions := strings.CutPrefix(strings.TrimSpace(line), partitions)
		key, err := base64.StdEncoding.Strict().DecodeString(strings.TrimSpace(line))
		switch {
		case err != nil || len(key) != 16 && len(key) != 24 && len(key) != 32:
			return nil, fmt.Errorf("line %d: a key is one line of base64 of 16, 24 or 32 bytes; make one with: openssl rand -base64 32", i+1)
		case bytes.Count(key, []byte{0}) == len(key): // of a template that was not filled in
			return nil, fmt.Errorf("line %d: a key of zero bytes is no secret; make one with: openssl rand -base64 32", i+1)
		case forPartitions && k.Partitions != nil:
			return nil, fmt.Errorf("line %d: there is a second key of partitions; keep the one that all processes have", i+1)
		case forPartitions:
			k.Partitions = key
		case len(k.Shared) == 2:
			return nil, fmt.Errorf("line %d: a third key; keep the one in use first, and one other", i+1)
		default:
			k.Shared = append(k.Shared, key)
		}
	}
	switch {
	case len(k.Shared) == 0:
		return nil, fmt.Errorf("no key but that of partitions; put the one in use first")
	case k.Partitions == nil && len(k.Shared) > 1:
		return nil, fmt.Errorf("with two keys, name the one that partitions are known by: add the line %q", partitions+"KEY")
	case k.Partitions == nil:
		k.Partitions = k.Shared[0]
	}
	return k, nil
}
