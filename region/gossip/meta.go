package gossip

import (
	"errors"
	"fmt"
	"math"

	"google.golang.org/protobuf/encoding/protowire"
)

// Metadata is what travels with a node's name and address: one byte for the
// format, then protobuf fields, so that a later version can add some which this
// one skips.
//
//	┌──────┬────────────┬────────────────┬─────────────┐
//	│ 0x01 │ 1 boot, µs │ 2 config hash  │ 3 version   │
//	└──────┴────────────┴────────────────┴─────────────┘
//
// With both texts at their longest it takes 143 bytes of the 512 at which the
// library panics.
const (
	metaFormat   = 1
	maxMeta      = 512
	maxMetaText  = 64
	fieldBoot    = protowire.Number(1)
	fieldHash    = protowire.Number(2)
	fieldVersion = protowire.Number(3)
)

type meta struct {
	boot       int64 // µs since the epoch, positive
	configHash string
	version    string
}

// encode clips texts that are too long: a strange hash is a smaller evil than a
// process that cannot be seen.
func (m meta) encode() []byte {
	b := []byte{metaFormat}
	b = protowire.AppendVarint(protowire.AppendTag(b, fieldBoot, protowire.VarintType), uint64(m.boot))
	b = protowire.AppendString(protowire.AppendTag(b, fieldHash, protowire.BytesType), clipText(m.configHash))
	b = protowire.AppendString(protowire.AppendTag(b, fieldVersion, protowire.BytesType), clipText(m.version))
	return b
}

// decodeMeta reads the metadata of a node that may be anybody's.
func decodeMeta(b []byte) (meta, error) {
	if len(b) == 0 || len(b) > maxMeta || b[0] != metaFormat {
		return meta{}, errors.New("its metadata is not of this program, or of a later format")
	}
	var m meta
	if err := eachField(b[1:], errors.New("its metadata is cut off"), m.set); err != nil {
		return meta{}, err
	}
	if m.boot <= 0 {
		return meta{}, errors.New("its metadata does not say when it started")
	}
	return m, nil
}

// set takes one field, whose value is whole; fields it does not know are skipped.
func (m *meta) set(number protowire.Number, kind protowire.Type, value []byte) error {
	switch {
	case number == fieldBoot && kind == protowire.VarintType:
		v, _ := protowire.ConsumeVarint(value)
		if v > math.MaxInt64 {
			return errors.New("its metadata has a start beyond all time")
		}
		m.boot = int64(v)
	case number == fieldHash && kind == protowire.BytesType:
		return setText(&m.configHash, value)
	case number == fieldVersion && kind == protowire.BytesType:
		return setText(&m.version, value)
	case number <= fieldVersion:
		return fmt.Errorf("its metadata has field %d of another type", number)
	}
	return nil
}

func setText(to *string, value []byte) error {
	text, _ := protowire.ConsumeBytes(value)
	if len(text) > maxMetaText || !printable(string(text)) {
		return fmt.Errorf("its metadata has a text that is not up to %d printable characters", maxMetaText)
	}
	*to = string(text)
	return nil
}

// clipText makes any text one that setText accepts.
func clipText(s string) string {
	s = s[:min(len(s), maxMetaText)]
	if printable(s) {
		return s
	}
	clean := []byte(s)
	for i, c := range clean {
		if !printable(string(rune(c))) {
			clean[i] = '?'
		}
	}
	return string(clean)
}

// printable keeps what strangers say from writing on terminals.
func printable(s string) bool {
	for i := range len(s) {
		if s[i] <= ' ' || s[i] > '~' {
			return false
		}
	}
	return true
}
