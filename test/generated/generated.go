// Package generated compares generated code with its schema.
package generated

import (
	"os"
	"testing"

	"github.com/bufbuild/protocompile"
	"github.com/google/go-cmp/cmp"
	gengo "google.golang.org/protobuf/cmd/protoc-gen-go/internal_gengo"
	"google.golang.org/protobuf/compiler/protogen"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/pluginpb"

	"github.com/regiond/regiond/test/golden"
)

// OfSchema fails where file is not what protoc-gen-go makes of a schema, with those that are linked into the test and that it
// imports. With -update it writes the file.
func OfSchema(t *testing.T, schema, file string) {
	t.Helper()
	linked := protocompile.ResolverFunc(func(path string) (protocompile.SearchResult, error) {
		d, err := protoregistry.GlobalFiles.FindFileByPath(path)
		return protocompile.SearchResult{Desc: d}, err
	})
	c := protocompile.Compiler{
		Resolver: protocompile.CompositeResolver{&protocompile.SourceResolver{}, linked}, SourceInfoMode: protocompile.SourceInfoStandard,
	}
	files, err := c.Compile(t.Context(), schema)
	if err != nil {
		t.Fatal(err)
	}
	var all []*descriptorpb.FileDescriptorProto // each behind what it imports
	known := map[string]bool{}
	var add func(d protoreflect.FileDescriptor)
	add = func(d protoreflect.FileDescriptor) {
		if known[d.Path()] {
			return
		}
		known[d.Path()] = true
		for i := range d.Imports().Len() {
			add(d.Imports().Get(i).FileDescriptor)
		}
		all = append(all, protodesc.ToFileDescriptorProto(d))
	}
	add(files[0])
	plugin, err := protogen.Options{}.New(&pluginpb.CodeGeneratorRequest{
		FileToGenerate: []string{schema}, Parameter: proto.String("paths=source_relative"), ProtoFile: all,
	})
	if err != nil {
		t.Fatal(err)
	}
	gengo.GenerateFile(plugin, plugin.FilesByPath[schema])
	want := []byte(plugin.Response().File[0].GetContent())
	if golden.Updating() {
		if err := os.WriteFile(file, want, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), string(got)); diff != "" {
		t.Errorf("%s is not generated from %s, -update writes it anew (-want +got):\n%s", file, schema, diff)
	}
}
