package wire_test

import (
	"os"
	"testing"

	"github.com/bufbuild/protocompile"
	"github.com/google/go-cmp/cmp"
	gengo "google.golang.org/protobuf/cmd/protoc-gen-go/internal_gengo"
	"google.golang.org/protobuf/compiler/protogen"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/pluginpb"
)

// The generated code is what protoc-gen-go makes of wire.proto; -update writes it anew.
func TestGeneratedCodeIsOfTheSchema(t *testing.T) {
	const file = "internal/pb/wire.pb.go"
	c := protocompile.Compiler{Resolver: &protocompile.SourceResolver{}, SourceInfoMode: protocompile.SourceInfoStandard}
	files, err := c.Compile(t.Context(), "wire.proto")
	if err != nil {
		t.Fatal(err)
	}
	plugin, err := protogen.Options{}.New(&pluginpb.CodeGeneratorRequest{
		FileToGenerate: []string{"wire.proto"},
		Parameter:      proto.String("paths=source_relative"),
		ProtoFile:      []*descriptorpb.FileDescriptorProto{protodesc.ToFileDescriptorProto(files[0])},
	})
	if err != nil {
		t.Fatal(err)
	}
	gengo.GenerateFile(plugin, plugin.Files[0])
	want := []byte(plugin.Response().File[0].GetContent())
	if *update {
		if err := os.WriteFile(file, want, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), string(got)); diff != "" {
		t.Errorf("%s is not generated from wire.proto, -update writes it anew (-want +got):\n%s", file, diff)
	}
}
