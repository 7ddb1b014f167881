package wire_test

import (
	"testing"

	"github.com/regiond/regiond/test/generated"
)

func TestGeneratedCodeIsOfTheSchema(t *testing.T) {
	generated.OfSchema(t, "wire.proto", "internal/pb/wire.pb.go")
}
