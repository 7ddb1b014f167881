package wire_test

import (
	"path/filepath"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/klauspost/compress/s2"

	"github.com/regiond/regiond/sync/wire"
)

// FuzzDecode holds for every input: no panic, and either an error that has a reason or a message that, written again, reads as the
// same.
func FuzzDecode(f *testing.F) {
	files, err := filepath.Glob("testdata/*.golden")
	if err != nil || len(files) == 0 {
		f.Fatalf("no golden file to begin with (%v)", err)
	}
	for _, file := range files {
		f.Add(readGolden(f, file))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		decodesToItself(t, data)
		// Changed bits rarely survive decompression, so the same bytes are a body too.
		decodesToItself(t, envelope(data))
		decodesToItself(t, packedEnvelope(s2.Encode(nil, data)))
	})
}

func decodesToItself(t *testing.T, data []byte) {
	before := slices.Clone(data)
	got, err := wire.Decode[wire.Message](data)
	if !slices.Equal(before, data) {
		t.Fatal("the input was changed")
	}
	if err != nil {
		if reason := reasonOf(err); !slices.Contains(wire.Reasons(), reason) || reason == wire.ReasonAuthor {
			t.Fatalf("refused with reason %q: %v", reason, err)
		}
		return
	}
	written := wire.Append(nil, got)
	again, err := wire.Decode[wire.Message](written)
	if err != nil {
		t.Fatalf("decoded, written again and then: %v", err)
	}
	if diff := cmp.Diff(got, again); diff != "" {
		t.Fatalf("decoded, written and decoded again (-first +second):\n%s", diff)
	}
}

// Whatever is done to a signed message or its subject, it is refused.
func FuzzVerify(f *testing.F) {
	const subject = "rl.v1.usage.eu-west"
	good := secretOf(f, "a key").Sign(subject, wire.Append(nil, usageOf(1, 2)))
	f.Add(subject, good)
	f.Add(subject+"x", good)
	f.Add(subject, good[:len(good)-1])
	f.Add(subject, append(slices.Clone(good), 0))
	f.Add("", []byte{0x08, wire.Version})
	f.Fuzz(func(t *testing.T, s string, data []byte) {
		err := secretOf(t, "another", "a key").Verify(s, data)
		if authentic := s == subject && slices.Equal(data, good); (err == nil) != authentic {
			t.Fatalf("subject %q, %x: %v", s, data, err)
		}
	})
}
