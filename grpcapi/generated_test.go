package grpcapi_test

import (
	"testing"

	"github.com/regiond/regiond/test/generated"
)

func TestGeneratedCodeIsOfTheSchema(t *testing.T) {
	generated.OfSchema(t, "kuadrantrls.proto", "internal/kuadrantpb/kuadrantrls.pb.go")
}
