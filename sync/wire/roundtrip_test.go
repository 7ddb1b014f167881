package wire_test

import (
	"bytes"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/regiond/regiond/sync/wire"
)

// What is appended decodes to the same, whatever stands before it in the buffer
// and whatever garbage is behind it.
func roundTrip[T any](gen *rapid.Generator[*T], encode func([]byte, *T) []byte, decode func([]byte) (*T, error)) func(*rapid.T) {
	return func(t *rapid.T) {
		want := gen.Draw(t, "message")
		before := rapid.SliceOfN(rapid.Byte(), 0, 20).Draw(t, "before")
		buf := append(make([]byte, 0, 4096), bytes.Repeat([]byte{0xff}, 4096)...)
		data := encode(append(buf[:0], before...), want)
		if !bytes.HasPrefix(data, before) {
			t.Fatalf("what stood in the buffer was changed: % x", data[:len(before)])
		}
		got, err := decode(data[len(before):])
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("-want +got:\n%s", diff)
		}
		if again := encode(nil, want); !bytes.Equal(again, data[len(before):]) {
			t.Fatal("the same message in a new buffer gave other bytes")
		}
	}
}

func TestRoundTrip(t *testing.T) {
	t.Run("usage", rapid.MakeCheck(roundTrip(anyUsage(), wire.AppendUsage, wire.DecodeUsage)))
	t.Run("heartbeat", rapid.MakeCheck(roundTrip(anyHeartbeat(), wire.AppendHeartbeat, wire.DecodeHeartbeat)))
	t.Run("snapshot request", rapid.MakeCheck(roundTrip(anySnapshotRequest(), wire.AppendSnapshotRequest, wire.DecodeSnapshotRequest)))
}

// A decoded message keeps nothing of the bytes that it came in.
func TestDecodedSharesNothing(t *testing.T) {
	data := wire.AppendUsage(nil, usageOf(3, 5))
	got, err := wire.DecodeUsage(data)
	if err != nil {
		t.Fatal(err)
	}
	clear(data)
	if diff := cmp.Diff(usageOf(3, 5), got); diff != "" {
		t.Errorf("after the bytes were overwritten (-want +got):\n%s", diff)
	}
}

// A message of the most of everything is read.
func TestLargestMessages(t *testing.T) {
	u := usageOf(wire.MaxGroups, wire.MaxEntries/wire.MaxGroups)
	data := wire.AppendUsage(nil, u)
	got, err := wire.DecodeUsage(data)
	if err != nil {
		t.Fatal(err)
	}
	if !cmp.Equal(u, got) {
		t.Errorf("%d groups of %d rows came back changed", len(u.Groups), len(u.Groups[0].IDs))
	}
	b := beatOf(wire.MaxAcks, wire.MaxRegions)
	gotHeartbeat, err := wire.DecodeHeartbeat(wire.AppendHeartbeat(nil, b))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(b, gotHeartbeat); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}
