package loan_test

import (
	"testing"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/regiond/regiond/quota/loan"
)

// TestBytesPerGrant adds up what a grant takes in a protobuf message, without what all messages have.
func TestBytesPerGrant(t *testing.T) {
	g := loan.Grant{ID: loan.ID{Epoch: 4_000_000_000, Stamp: 1_795_198_405_260_197}, Units: 100_000, New: true, Epoch: 4_000_000_000, Time: 1_795_198_405_260_197}
	var b []byte
	b = protowire.AppendFixed64(protowire.AppendTag(b, 1, protowire.Fixed64Type), 0x0123456789abcdef) // the partition, as a hash
	b = protowire.AppendVarint(protowire.AppendTag(b, 2, protowire.VarintType), 100)                  // the limit, by its place in the message
	b = protowire.AppendFixed32(protowire.AppendTag(b, 3, protowire.Fixed32Type), g.ID.Epoch)
	b = protowire.AppendVarint(protowire.AppendTag(b, 4, protowire.VarintType), uint64(g.ID.Stamp))
	b = protowire.AppendVarint(protowire.AppendTag(b, 5, protowire.VarintType), uint64(g.Units))
	b = protowire.AppendVarint(protowire.AppendTag(b, 6, protowire.VarintType), 1) // New
	b = protowire.AppendFixed32(protowire.AppendTag(b, 7, protowire.Fixed32Type), g.Epoch)
	b = protowire.AppendVarint(protowire.AppendTag(b, 8, protowire.VarintType), uint64(g.Time))
	b = protowire.AppendBytes(protowire.AppendTag(nil, 1, protowire.BytesType), b)
	t.Logf("%d bytes for a grant", len(b))
	if len(b) > 60 {
		t.Errorf("a grant takes %d bytes", len(b))
	}
}
