package gossip

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"os"
)

// ReadKey reads the key that all processes of a cluster share: one line of
// base64 (standard alphabet, with padding) of 16, 24 or 32 bytes. Its errors
// contain nothing of the key.
func ReadKey(file string) ([]byte, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("read gossip key: %w", err)
	}
	text = bytes.TrimSpace(text)
	key, err := base64.StdEncoding.Strict().DecodeString(string(text))
	if err != nil || bytes.ContainsAny(text, "\r\n") || !keyLength(key) {
		return nil, fmt.Errorf("gossip key in %s: must be one line of base64 of 16, 24 or 32 bytes; "+
			"make one with: openssl rand -base64 32", file)
	}
	return key, nil
}

// keyLength reports whether a key has one of AES's lengths.
func keyLength(key []byte) bool { return len(key) == 16 || len(key) == 24 || len(key) == 32 }
