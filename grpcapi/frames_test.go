package grpcapi_test

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"net"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"google.golang.org/grpc/codes"

	"github.com/regiond/regiond/test/capture"
)

const shouldRateLimit = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit"

// frames is a client that sends the frames that it likes.
type frames struct {
	*http2.Framer
	conn net.Conn
	t    *testing.T
	out  *bufio.Writer
	head bytes.Buffer
	hp   *hpack.Encoder
	last uint32 // stream
}

func sendFrames(t *testing.T, addr string) *frames {
	t.Helper()
	conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	if err := conn.SetDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	f := &frames{conn: conn, t: t, out: bufio.NewWriterSize(conn, 64<<10)}
	f.hp, f.Framer = hpack.NewEncoder(&f.head), http2.NewFramer(f.out, conn)
	f.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	if _, err := f.out.WriteString(http2.ClientPreface); err != nil {
		t.Fatal(err)
	}
	f.check(f.WriteSettings())
	return f
}

func (f *frames) check(err error) {
	f.t.Helper()
	if err != nil {
		f.t.Fatal(err)
	}
}

// begin begins a call, of which more is sent unless it is at its end.
func (f *frames) begin(method string, end bool, more ...hpack.HeaderField) {
	f.t.Helper()
	f.head.Reset()
	for _, h := range append([]hpack.HeaderField{
		{Name: ":method", Value: "POST"},
		{Name: ":scheme", Value: "http"},
		{Name: ":path", Value: method},
		{Name: ":authority", Value: "h"},
		{Name: "content-type", Value: "application/grpc"},
		{Name: "te", Value: "trailers"},
	}, more...) {
		f.check(f.hp.WriteField(h))
	}
	f.last += 2
	f.check(f.WriteHeaders(http2.HeadersFrameParam{StreamID: f.last - 1, BlockFragment: f.head.Bytes(), EndHeaders: true, EndStream: end}))
}

// status sends all, and returns the code of the last call.
func (f *frames) status() (code string) {
	f.t.Helper()
	f.check(f.out.Flush())
	for {
		got, err := f.ReadFrame()
		f.check(err)
		if h, ok := got.(*http2.MetaHeadersFrame); ok && h.StreamID == f.last-1 && h.StreamEnded() {
			for _, field := range h.Fields {
				if field.Name == "grpc-status" {
					return field.Value
				}
			}
		}
	}
}

// taken sends all, and waits until the server has taken it.
func (f *frames) taken() {
	f.t.Helper()
	f.check(f.WritePing(false, [8]byte{1}))
	f.check(f.out.Flush())
	for {
		got, err := f.ReadFrame()
		f.check(err)
		if p, ok := got.(*http2.PingFrame); ok && p.IsAck() {
			return
		}
	}
}

// announced is a message as gRPC sends it, that is said to have so many bytes.
func announced(length uint32, message ...byte) []byte {
	return append(binary.BigEndian.AppendUint32([]byte{0}, length), message...)
}

// TestBurst: all that Envoy sends on a new connection, before it has read how many requests it may send, is answered.
func TestBurst(t *testing.T) {
	const most = 1024 // max_concurrent_streams of Envoy's own
	w := serve(t, basics, nil)
	w.block = make(chan struct{})
	f := sendFrames(t, w.conn.Target())
	f.check(f.WriteWindowUpdate(0, 1<<30))
	message := encoded("edge", descriptor("user=a"))
	for range most {
		f.begin(shouldRateLimit, false)
		f.check(f.WriteData(f.last-1, true, announced(uint32(len(message)), message...)))
	}
	f.check(f.WritePing(false, [8]byte{1}))
	f.check(f.out.Flush())
	for answered := 0; answered < most; {
		got, err := f.ReadFrame()
		f.check(err)
		switch h := got.(type) {
		case *http2.RSTStreamFrame:
			close(w.block)
			t.Fatal(h)
		case *http2.PingFrame: // all have begun
			close(w.block)
		case *http2.MetaHeadersFrame:
			if h.StreamEnded() {
				answered++
			}
		}
	}
}

// TestCutMessages: a message that is not sent to its end is INVALID_ARGUMENT, whatever is missing.
func TestCutMessages(t *testing.T) {
	t.Parallel()
	w := serve(t, basics, nil)
	message := encoded("edge", descriptor("user=a"))
	whole := announced(uint32(len(message)), message...)
	for _, sent := range [][]byte{nil, whole[:1], whole[:4], whole[:5], whole[:6], whole[:len(whole)-1], whole, announced(math.MaxUint32), announced(math.MaxUint32, 1)} {
		f := sendFrames(t, w.conn.Target())
		f.begin(shouldRateLimit, false)
		f.check(f.WriteData(f.last-1, true, sent))
		want := codes.InvalidArgument
		if len(sent) == len(whole) {
			want = codes.OK
		}
		if got := f.status(); got != fmt.Sprint(int(want)) {
			t.Errorf("%x: code %s, want %d", sent, got, want)
		}
	}
}

// kept waits until what has been done since it was called before keeps at most so many MiB of memory. It does not wait until
// requests that do not arrive end by themselves, which is after 5 s.
func kept(t *testing.T, most float64) (wait func()) {
	t.Helper()
	heap := func() float64 {
		for range 3 { // what pools have is let go by the second
			runtime.GC()
		}
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return float64(m.HeapAlloc) / (1 << 20)
	}
	before := heap()
	return func() {
		t.Helper()
		again := time.NewTicker(20 * time.Millisecond)
		defer again.Stop()
		n := heap() - before
		for start := time.Now(); n > most && time.Since(start) < 3*time.Second; n = heap() - before {
			<-again.C
		}
		if n > most {
			t.Fatalf("%.1f MiB are kept", n)
		}
	}
}

// TestMetadataIsNotKept: a few bytes of HPACK become a megabyte of metadata, which a request under way does not hold.
func TestMetadataIsNotKept(t *testing.T) {
	w := serve(t, basics, nil)
	wait := kept(t, 10) // before, 30
	var large []hpack.HeaderField
	for range 240 {
		large = append(large, hpack.HeaderField{Name: "x-bin", Value: strings.Repeat("A", 3900)})
	}
	f := sendFrames(t, w.conn.Target())
	for range 30 {
		f.begin(shouldRateLimit, false, large...)
	}
	f.taken()
	wait()
}

// TestPiecesAreNotKept: a message that is sent byte by byte takes no more memory than one that is sent at once.
func TestPiecesAreNotKept(t *testing.T) {
	w := serve(t, basics, nil)
	for _, method := range []string{shouldRateLimit, "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo"} {
		wait := kept(t, 1.5) // before, 3.4
		f := sendFrames(t, w.conn.Target())
		for range 10 {
			f.begin(method, false)
			f.check(f.WriteData(f.last-1, false, announced(60_000)))
		}
		for range 8000 {
			for stream := uint32(1); stream < f.last; stream += 2 {
				f.check(f.WriteData(stream, false, []byte{1}))
			}
		}
		f.taken()
		wait()
	}
}

// TestRefusedRequestsAreNotKept: what finds no place leaves nothing behind, whatever deadline it has.
func TestRefusedRequestsAreNotKept(t *testing.T) {
	w := serve(t, basics, nil)
	addr, _ := bounded(t, w, 2)
	f := sendFrames(t, addr)
	f.check(f.WriteWindowUpdate(0, 1<<30))
	f.begin(shouldRateLimit, false)
	message := encoded("edge", descriptor("user=a"))
	f.check(f.WriteData(f.last-1, true, announced(uint32(len(message)), message...)))
	if got := f.status(); got != "0" { // from now on the connection is no stranger's
		t.Fatal(got)
	}
	w.block = make(chan struct{})
	t.Cleanup(func() { close(w.block) })
	capture.Eventually(t, func() error { // two have the places, and keep them; the first may not have given back its own
		f.begin(shouldRateLimit, false)
		f.check(f.WriteData(f.last-1, true, announced(uint32(len(message)), message...)))
		f.taken()
		if w.blocked.Load() < 2 {
			return errors.New("there is room")
		}
		return nil
	})
	wait := kept(t, 2) // before, 6
	for range 200 {
		for range 100 {
			f.begin(shouldRateLimit, true, hpack.HeaderField{Name: "grpc-timeout", Value: "99999999H"})
		}
		if got := f.status(); got != "0" { // OVER_LIMIT, since the places are taken
			t.Fatal(got)
		}
	}
	wait()
}
