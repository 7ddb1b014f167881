package wire_test

import (
	"bytes"
	"encoding/json"
	"testing"

	"github.com/bufbuild/protocompile"
	"github.com/google/go-cmp/cmp"
	"github.com/klauspost/compress/s2"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/dynamicpb"
	"pgregory.net/rapid"

	"github.com/regiond/regiond/quota"
	"github.com/regiond/regiond/sync/wire"
)

// schema is wire.proto, compiled.
func schema(t testing.TB) protoreflect.FileDescriptor {
	t.Helper()
	c := protocompile.Compiler{Resolver: &protocompile.SourceResolver{}}
	files, err := c.Compile(t.Context(), "wire.proto")
	if err != nil {
		t.Fatal(err)
	}
	return files[0]
}

// object is a message as the schema names its fields.
type object map[string]any

// twin writes the object as the generic protobuf library does, by the schema alone.
func twin(t rapid.TB, file protoreflect.FileDescriptor, name protoreflect.Name, o object) *dynamicpb.Message {
	t.Helper()
	text, err := json.Marshal(o)
	if err != nil {
		t.Fatal(err)
	}
	m := dynamicpb.NewMessage(file.Messages().ByName(name))
	if err := protojson.Unmarshal(text, m); err != nil {
		t.Fatal(err)
	}
	return m
}

// holdsToSchema checks both directions: what we write means o and nothing else to
// the generic library, and in the same bytes as it writes them; and what it writes
// we read as want.
func holdsToSchema[T any](t *rapid.T, file protoreflect.FileDescriptor, body object, want *T, ours []byte, decode func([]byte) (*T, error)) {
	expected := twin(t, file, "Body", body)
	plain, err := proto.MarshalOptions{Deterministic: true}.Marshal(expected)
	if err != nil {
		t.Fatal(err)
	}
	theirs, err := proto.MarshalOptions{Deterministic: true}.Marshal(
		twin(t, file, "Envelope", object{"version": 1, "body": body}))
	if err != nil {
		t.Fatal(err)
	}
	env := dynamicpb.NewMessage(file.Messages().ByName("Envelope"))
	if err := proto.Unmarshal(ours, env); err != nil {
		t.Fatalf("the generic library cannot read it: %v", err)
	}
	fields := env.Descriptor().Fields()
	if packed := env.Get(fields.ByName("body_s2")).Bytes(); len(packed) > 0 {
		if got, err := s2.Decode(nil, packed); err != nil || !bytes.Equal(got, plain) {
			t.Fatalf("body_s2 is not the body that the generic library writes (%v)", err)
		}
	} else if !bytes.Equal(ours, theirs) {
		t.Fatalf("bytes differ:\n%s", cmp.Diff(theirs, ours))
	}
	got, err := decode(theirs)
	if err != nil {
		t.Fatalf("we cannot read what the generic library wrote: %v", err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Fatalf("-want +got:\n%s", diff)
	}
}

func TestWeWriteAndReadWhatTheSchemaSays(t *testing.T) {
	file := schema(t)
	t.Run("usage", rapid.MakeCheck(func(t *rapid.T) {
		u := anyUsage().Draw(t, "usage")
		holdsToSchema(t, file, object{"usage": usageObject(u)}, u, wire.AppendUsage(nil, u), wire.DecodeUsage)
	}))
	t.Run("heartbeat", rapid.MakeCheck(func(t *rapid.T) {
		b := anyHeartbeat().Draw(t, "heartbeat")
		holdsToSchema(t, file, object{"heartbeat": beatObject(b)}, b, wire.AppendHeartbeat(nil, b), wire.DecodeHeartbeat)
	}))
	t.Run("snapshot request", rapid.MakeCheck(func(t *rapid.T) {
		r := anySnapshotRequest().Draw(t, "request")
		body := object{"snapshot_request": object{"from": processObject(r.From), "own_state": r.OwnState, "missing": r.Missing}}
		holdsToSchema(t, file, body, r, wire.AppendSnapshotRequest(nil, r), wire.DecodeSnapshotRequest)
	}))
}

func processObject(p quota.Process) object {
	return object{"region": p.Region, "instance": p.Instance, "boot_us": p.Boot}
}

func usageObject(u *wire.Usage) object {
	groups := []object{}
	for _, g := range u.Groups {
		// From the words of the schema: each epoch as the difference to the one before,
		// the first to the start of the bucket.
		epochs := []int64{}
		for i, e := range g.Generations {
			if i == 0 {
				epochs = append(epochs, e-g.Bucket*g.BucketUS)
			} else {
				epochs = append(epochs, e-g.Generations[i-1])
			}
		}
		groups = append(groups, object{
			"limit": g.Limit, "window_us": g.WindowUS, "bucket_us": g.BucketUS, "bucket": g.Bucket,
			"ids": g.IDs, "generations": epochs, "units": g.Units,
		})
	}
	o := object{"from": processObject(u.From), "seq": u.Seq, "time_us": u.TimeUS, "origin": u.Origin, "origin_time_us": u.OriginTimeUS, "groups": groups}
	if u.Chunk.Snapshot > 0 {
		o["chunk"] = object{"snapshot": u.Chunk.Snapshot, "index": u.Chunk.Index, "count": u.Chunk.Count}
	}
	return o
}

func beatObject(b *wire.Heartbeat) object {
	acks, weights := []object{}, []object{}
	for _, a := range b.Acks {
		acks = append(acks, object{"process": processObject(a.Process), "seq": a.Seq, "received_us": a.ReceivedUS})
	}
	for _, w := range b.Weights {
		weights = append(weights, object{"region": w.Region, "weight": w.Weight})
	}
	return object{
		"from": processObject(b.From), "seq": b.Seq, "time_us": b.TimeUS, "acks": acks, "members": b.Members,
		"topology": b.Topology, "weights": weights, "unsent_ms": b.UnsentMS, "leaving": b.Leaving, "full": b.Full, "key": b.Key,
	}
}

// What a newer process adds, in any message at any depth, changes nothing for us.
func TestUnknownFieldsAreSkippedEverywhere(t *testing.T) {
	file := schema(t)
	u := usageOf(2, 2)
	u.Chunk = wire.Chunk{Snapshot: 1, Count: 1}
	b := beatOf(2, 2)
	for _, row := range []struct {
		kind kind
		body object
		want any
	}{
		{kinds()[0], object{"usage": usageObject(u)}, u},
		{kinds()[1], object{"heartbeat": beatObject(b)}, b},
	} {
		m := twin(t, file, "Envelope", object{"version": 1, "body": row.body})
		addUnknown(m)
		data, err := proto.MarshalOptions{Deterministic: true}.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		got, err := row.kind.decode(data)
		if diff := cmp.Diff(row.want, got); err != nil || diff != "" {
			t.Errorf("%s: error %v, -want +got:\n%s", row.kind.name, err, diff)
		}
	}
}

// addUnknown gives m and every message in it fields that the schema does not have.
func addUnknown(m protoreflect.Message) {
	m.Range(func(f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		switch {
		case f.Message() == nil:
		case f.IsList():
			for i := range v.List().Len() {
				addUnknown(v.List().Get(i).Message())
			}
		default:
			addUnknown(v.Message())
		}
		return true
	})
	m.SetUnknown(newerFields(nil))
}

// The tests above see every field that the schema has: it has as many as they set.
func TestNoFieldOfTheSchemaIsUntested(t *testing.T) {
	file := schema(t)
	want := map[string]int{
		"Envelope": 3, "Body": 3, "Process": 3, "Usage": 7, "Chunk": 3, "Group": 7,
		"Heartbeat": 11, "Ack": 3, "Weight": 2, "SnapshotRequest": 3,
	}
	got := map[string]int{}
	for i := range file.Messages().Len() {
		m := file.Messages().Get(i)
		got[string(m.Name())] = m.Fields().Len()
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("fields of each message (-tested +in wire.proto):\n%s", diff)
	}
}
