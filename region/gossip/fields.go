package gossip

import "google.golang.org/protobuf/encoding/protowire"

// eachField gives take every protobuf field of what may be anybody's bytes, its value
// whole. It ends with take's first error, or with cut for bytes that end within a field.
func eachField(b []byte, cut error, take func(number protowire.Number, kind protowire.Type, value []byte) error) error {
	for len(b) > 0 {
		number, kind, n := protowire.ConsumeTag(b)
		if n < 0 {
			return cut
		}
		b = b[n:]
		if n = protowire.ConsumeFieldValue(number, kind, b); n < 0 {
			return cut
		}
		if err := take(number, kind, b[:n]); err != nil {
			return err
		}
		b = b[n:]
	}
	return nil
}
