package grpcapi

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"slices"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
)

var (
	// errTooLarge says that a message is larger than its method reads.
	errTooLarge = errors.New("the message is too large")
	errHidden   = status.Error(codes.Internal, "this version of grpc hides its streams")
	errCut      = status.Error(codes.InvalidArgument, "the call ends before its message does")
)

const (
	// maxDrained is how much of a message that is too large is read before the answer, so that a gateway can send the
	// message to its end.
	maxDrained = 16 << 20
	// chunk is how much memory a message gets in advance of its bytes.
	chunk = 4 << 10
)

// unary returns the unary method of that name, which reads messages of at most so many bytes. answer gets errTooLarge
// where one is larger, or what is wrong with it.
//
// It is a stream to grpc, so that messages are read here: to what it does not like, grpc answers with an error, and with
// that Envoy lets a request pass.
func unary[T any, M interface {
	*T
	proto.Message
}](name string, most int, answer func(ctx context.Context, r M, err error) (message, error),
) grpc.StreamDesc {
	return grpc.StreamDesc{StreamName: name, ServerStreams: true, Handler: func(_ any, stream grpc.ServerStream) error {
		ctx := stream.Context()
		r := M(new(T))
		data, err := read(ctx, most)
		switch {
		case err == nil:
			err = unmarshal(data, r)
		case errors.Is(err, io.EOF):
			return status.Error(codes.InvalidArgument, "the call has no message")
		case !errors.Is(err, errTooLarge):
			return err
		}
		a, err := answer(ctx, r, err)
		if err != nil {
			return err
		}
		return stream.SendMsg(a)
	}}
}

// messageReader is implemented by the streams of grpc's servers.
type messageReader interface {
	// ReadMessageHeader fills b with what comes next, of a message as well. grpc's own way to read a message keeps each piece
	// that arrived apart until all are there, which takes 44 bytes of memory for one that is sent alone.
	ReadMessageHeader(b []byte) error
}

// fill reads a part of a message.
func fill(from messageReader, b []byte) error {
	err := from.ReadMessageHeader(b)
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return errCut
	}
	return err
}

// read returns the next message of a call, errTooLarge, or io.EOF after the last one. Other errors are those of a call.
func read(ctx context.Context, most int) (data []byte, err error) {
	from, ok := grpc.ServerTransportStreamFromContext(ctx).(messageReader)
	if !ok {
		return nil, errHidden
	}
	var header [5]byte // whether it is compressed, and its length
	switch err := from.ReadMessageHeader(header[:]); {
	case errors.Is(err, io.ErrUnexpectedEOF):
		return nil, errCut
	case err != nil:
		return nil, err
	case header[0] != 0:
		return nil, status.Error(codes.Unimplemented, "the message is compressed; send it as it is")
	}
	length := int(min(binary.BigEndian.Uint32(header[1:]), maxDrained))
	if length > most {
		piece := make([]byte, chunk)
		for left := length; left > 0; left -= len(piece) {
			piece = piece[:min(left, chunk)]
			if err := fill(from, piece); err != nil {
				return nil, err
			}
		}
		return nil, errTooLarge
	}
	for at := 0; at < length; at = len(data) {
		data = slices.Grow(data, min(length-at, chunk))[:at+min(length-at, chunk)]
		if err := fill(from, data[at:]); err != nil {
			return nil, err
		}
	}
	return data, nil
}

// unmarshal is proto.Unmarshal, and takes text of any bytes.
func unmarshal(data []byte, m proto.Message) error {
	if proto.Unmarshal(data, m) == nil {
		return nil
	}
	proto.Reset(m)
	return decode(data, m.ProtoReflect(), protowire.DefaultRecursionLimit)
}

// decode merges an encoded message into m, and at most so many that lie one in the other. It sets text itself, of messages
// within too, and leaves the rest to protobuf.
func decode(data []byte, m protoreflect.Message, depth int) error {
	if depth == 0 {
		return errors.New("messages are nested too deep")
	}
	var rest []byte
	for len(data) > 0 {
		number, kind, tag := protowire.ConsumeTag(data)
		if tag < 0 {
			return protowire.ParseError(tag)
		}
		size := protowire.ConsumeFieldValue(number, kind, data[tag:])
		if size < 0 {
			return protowire.ParseError(size)
		}
		field, value := data[:tag+size], data[tag:tag+size]
		data = data[tag+size:]
		f := m.Descriptor().Fields().ByNumber(number)
		if f == nil || kind != protowire.BytesType || f.IsMap() {
			rest = append(rest, field...)
			continue
		}
		value, _ = protowire.ConsumeBytes(value)
		var err error
		switch {
		case f.Kind() == protoreflect.StringKind && f.IsList():
			m.Mutable(f).List().Append(protoreflect.ValueOfString(string(value)))
		case f.Kind() == protoreflect.StringKind:
			m.Set(f, protoreflect.ValueOfString(string(value)))
		case f.Kind() == protoreflect.MessageKind && f.IsList():
			err = decode(value, m.Mutable(f).List().AppendMutable().Message(), depth-1)
		case f.Kind() == protoreflect.MessageKind:
			err = decode(value, m.Mutable(f).Message(), depth-1)
		default:
			rest = append(rest, field...)
		}
		if err != nil {
			return err
		}
	}
	return proto.UnmarshalOptions{Merge: true}.Unmarshal(rest, m.Interface())
}
