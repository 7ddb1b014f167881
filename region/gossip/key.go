package gossip

import (
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"os"
)

// maxKeyFile is far above any key and far below what could hurt.
const maxKeyFile = 1024

// ReadKey reads the key that all processes of a cluster share: one line of
// base64 (the usual alphabet, with padding) that stands for 16, 24 or 32 bytes.
// Nothing of the content appears in its errors.
func ReadKey(file string) ([]byte, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, fmt.Errorf("read gossip key: %w", err)
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxKeyFile+1))
	if err != nil {
		return nil, fmt.Errorf("read gossip key: %w", err)
	}
	key, err := parseKey(text)
	if err != nil {
		return nil, fmt.Errorf("gossip key in %s: %w; make one with: openssl rand -base64 32", file, err)
	}
	return key, nil
}

func parseKey(text []byte) ([]byte, error) {
	if len(text) > maxKeyFile {
		return nil, fmt.Errorf("the file is longer than %d bytes", maxKeyFile)
	}
	text = bytes.TrimSpace(text)
	if len(text) == 0 {
		return nil, errors.New("the file is empty")
	}
	if bytes.ContainsAny(text, "\r\n") {
		return nil, errors.New("the file must be one line")
	}
	key, err := base64.StdEncoding.Strict().DecodeString(string(text))
	if err != nil {
		return nil, errors.New("the line must be base64")
	}
	return key, checkKey(key)
}

// checkKey holds a key to AES's lengths.
func checkKey(key []byte) error {
	switch len(key) {
	case 16, 24, 32:
		return nil
	}
	return fmt.Errorf("a key must be 16, 24 or 32 bytes long, this one has %d", len(key))
}
