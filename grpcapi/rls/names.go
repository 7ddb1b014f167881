package rls

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"strings"

	"github.com/regiond/regiond/quota"
)

// hashed begins what stands for a text that is no valid id.
const hashed = "sha256:"

// ID is what a descriptor's value is counted as: itself, if it is a valid id, else its hash. Two values never have the
// same: a value that looks like a hash has one of its own.
func ID(value string) string {
	if quota.ValidID(value) == nil && !strings.HasPrefix(value, hashed) {
		return value
	}
	sum := sha256.Sum256([]byte(value))
	return hashed + base64.RawURLEncoding.EncodeToString(sum[:])
}

// mostName leaves room for what dimensions and policies put before the name of a limit.
const mostName = 48

// policyName is that of a domain's policy.
func policyName(domain string) string { return "rls-" + slug(domain) }

// limitName is that of the limit behind a path. It depends on the path alone, so that usage survives what else changes.
func limitName(path []step) string {
	parts := make([]string, len(path))
	plain := true
	for i, s := range path {
		parts[i] = s.name
		if s.kind == together {
			parts[i] += "+" // another partition than without share_threshold
		}
		plain = plain && strings.Trim(parts[i], "abcdefghijklmnopqrstuvwxyz0123456789_") == "" && parts[i][0] != '_'
	}
	name := strings.Join(parts, "--")
	if plain && len(name) <= mostName {
		return name
	}
	if len(parts) == 1 && !strings.Contains(name, "--") {
		return slug(name)
	}
	return slug(strings.Join(parts, "\x00") + "\x00") // which is no name, and so is hashed
}

// slug is a valid name that shows what it can of a text, and its hash where that is not all.
func slug(text string) string {
	if quota.ValidName(text) == nil && len(text) <= mostName {
		return text
	}
	sum := sha256.Sum256([]byte(text))
	digest := hex.EncodeToString(sum[:5])
	name := strings.Map(func(r rune) rune {
		switch {
		case r >= 'A' && r <= 'Z':
			return r - 'A' + 'a'
		case r >= 'a' && r <= 'z' || r >= '0' && r <= '9' || r == '_' || r == '-':
			return r
		}
		return '-'
	}, text)
	name = strings.TrimLeft(name[:min(len(name), mostName-len(digest)-1)], "_-")
	if name == "" {
		return digest
	}
	return name + "-" + digest
}

// pathText is a path as envoyproxy/ratelimit writes it.
func pathText(path []step) string {
	parts := make([]string, len(path))
	for i, s := range path {
		parts[i] = s.name
	}
	return strings.Join(parts, ".")
}
