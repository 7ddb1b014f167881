//go:build linux

package main

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"os"
	"time"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	ratelimit "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/proto"
)

// callFile is a file of both services: nobody comes near the limit of a tenant, and all but the first request with one of
// the other values are refused.
const callFile = `domain: bench
descriptors:
  - {key: tenant, rate_limit: {unit: minute, requests_per_unit: 100000}}
  - {key: denied, rate_limit: {unit: hour, requests_per_unit: 1}}
`

// What an answer over gRPC is taken for, once its frames are read.
const (
	callAllowed = "OK"
	callDenied  = "OVER_LIMIT"
)

// theirSettings are those with which envoyproxy/ratelimit was fastest here.
var theirSettings = []string{"LOCAL_CACHE_SIZE_IN_BYTES=33554432", "REDIS_PIPELINE_WINDOW=150us"}

// envoyCalls returns a scenario: Envoy's rate limit service beside envoyproxy/ratelimit's, on the same Redis.
func envoyCalls(binary string) func(*stage, figures) {
	return func(s *stage, out figures) {
		if binary == "" {
			fmt.Fprintln(os.Stderr, "        skipped: -envoy-ratelimit names no binary of envoyproxy/ratelimit")
			return
		}
		r := s.serve(setup{rls: callFile})[0]
		theirs := s.envoy(binary, r.redis, callFile, theirSettings...)
		side := func(name string, p *process, key string, n, each int, want string) *load {
			return s.add(name, p, r.redis, newCallClient(p.grpc, conns/each, calls(key, n, each), each, want))
		}
		pair := func(name string, key string, n, each int, want string) (ours, base *load) {
			return side(name, r.process, key, n, each, want), side(name+", envoyproxy/ratelimit", theirs, key, n, each, want)
		}
		allowed, base := pair("gRPC", "tenant", tenants, streams, callAllowed)
		single, baseSingle := pair("gRPC, a call each", "tenant", tenants, 1, callAllowed)
		alternate(rounds, saturated, turnFor, base, allowed, baseSingle, single)
		out["call-single-ratio"], out["call-single-cpu-ratio"] = single.ratio(baseSingle, rate), single.ratio(baseSingle, (*turn).total)
		out["call-ratio"], out["call-cpu-ratio"] = allowed.ratio(base, rate), allowed.ratio(base, (*turn).total)
		out["call-rate"], out["call-base"] = allowed.median(rate), base.median(rate)

		refused, baseRefused := pair("gRPC, denied", "denied", denied, streams, "")
		for _, l := range []*load{refused, baseRefused} {
			l.client.saturate(warmup)
			l.client.want = []byte(callDenied)
		}
		alternate(rounds, saturated, turnFor, baseRefused, refused)
		out["call-denied-ratio"] = refused.ratio(baseRefused, rate)

		paced := side("gRPC, 2,000/s", r.process, "tenant", tenants, 1, callAllowed)
		alternate(rounds, perSecond(2_000), 2*time.Second, paced)
		out["call-p99"] = paced.median(p99)
	}
}

// streams are the calls that are sent together on a connection, as a gateway's thread does with those of its clients.
const streams = 8

// calls are requests of so many values of a key, several calls in each: a HEADERS and a DATA frame for a call, whose streams
// are filled in by connection.streams.
func calls(key string, n, each int) (all [][]byte) {
	var headers bytes.Buffer
	e := hpack.NewEncoder(&headers)
	for _, h := range [][2]string{
		{":method", "POST"},
		{":scheme", "http"},
		{":path", ratelimit.RateLimitService_ShouldRateLimit_FullMethodName},
		{":authority", "127.0.0.1"},
		{"content-type", "application/grpc"},
		{"te", "trailers"},
	} {
		check(e.WriteField(hpack.HeaderField{Name: h[0], Value: h[1], Sensitive: true})) // not in the table of a connection
	}
	for i := range n / each * each {
		entry := &common.RateLimitDescriptor_Entry{Key: key, Value: fmt.Sprintf("t%07d", i)}
		message := must(proto.Marshal(&ratelimit.RateLimitRequest{
			Domain: "bench", Descriptors: []*common.RateLimitDescriptor{{Entries: []*common.RateLimitDescriptor_Entry{entry}}},
		}))
		data := append(binary.BigEndian.AppendUint32([]byte{0}, uint32(len(message))), message...) //nolint:gosec // it is short
		if i%each == 0 {
			all = append(all, nil)
		}
		b := bytes.NewBuffer(all[i/each])
		f := http2.NewFramer(b, nil)
		check(f.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: headers.Bytes(), EndHeaders: true}))
		check(f.WriteData(1, true, data))
		all[i/each] = b.Bytes()
	}
	return all
}

// newCallClient is a client of gRPC, with so many calls at a time on each connection.
func newCallClient(addr string, n int, requests [][]byte, each int, want string) *client {
	var hello bytes.Buffer
	hello.WriteString(http2.ClientPreface)
	f := http2.NewFramer(&hello, nil)
	check(f.WriteSettings())
	check(f.WriteWindowUpdate(0, math.MaxInt32-1<<16)) // of a connection, and for good
	decides := []byte("O")                             // in either
	return (&client{requests: requests, each: each, want: []byte(want), decides: decides, hello: hello.Bytes()}).open(addr, n)
}

// frameHeader is the length of what precedes the payload of a frame of HTTP/2.
const frameHeader = 9

// streams makes the calls of a request the connection's next streams.
func (c *connection) streams(request []byte) []byte {
	c.own = append(c.own[:0], request...)
	for at := 0; at < len(c.own); at += frameHeader + frameSize(c.own[at:]) {
		if http2.FrameType(c.own[at+3]) == http2.FrameHeaders {
			c.id += 2
		}
		binary.BigEndian.PutUint32(c.own[at+5:], c.id-1)
	}
	return c.own
}

func frameSize(b []byte) int { return int(b[0])<<16 | int(b[1])<<8 | int(b[2]) }

// frames reads the frames that have arrived. Once all calls of the request are answered, what is in the buffer is what the
// answers say.
func (c *connection) frames(each int) (answered bool, err error) {
	at := 0
	for c.got-at >= frameHeader {
		b := c.buf[at:c.got]
		size := frameSize(b)
		if len(b) < frameHeader+size {
			break
		}
		kind, flags, payload := http2.FrameType(b[3]), http2.Flags(b[4]), b[frameHeader:frameHeader+size]
		at += frameHeader + size
		switch {
		case kind == http2.FrameData:
			c.said = append(append(c.said, said(payload)...), ' ')
		case (kind == http2.FrameSettings || kind == http2.FramePing) && !flags.Has(http2.FlagSettingsAck):
			ack := append([]byte{0, 0, 0, b[3], byte(http2.FlagSettingsAck), 0, 0, 0, 0}, payload...)
			if kind == http2.FrameSettings {
				ack = ack[:frameHeader]
			}
			ack[2] = byte(len(ack) - frameHeader)
			if _, err := unix.Write(c.fd, ack); err != nil {
				return false, err
			}
		case kind == http2.FrameGoAway, kind == http2.FrameRSTStream:
			return false, fmt.Errorf("the server sends %v %x", kind, payload)
		}
		if flags.Has(http2.FlagDataEndStream) && (kind == http2.FrameData || kind == http2.FrameHeaders) {
			if c.ended++; c.ended == each { // and nothing follows
				c.got = copy(c.buf, c.said)
				c.ended, c.said = 0, c.said[:0]
				return true, nil
			}
		}
	}
	c.got = copy(c.buf, c.buf[at:c.got])
	return false, nil
}

// said is what a message says, which is in one frame: "" if nothing was decided.
func said(message []byte) string {
	const length, basis = 5, "basis\x12"
	if len(message) < length+2 || message[length] != 1<<3 {
		return ""
	}
	if _, rest, ok := bytes.Cut(message, []byte(basis)); ok { // regiond's
		if b := rest[min(3, len(rest)):]; !bytes.HasPrefix(b, []byte("exact")) && !bytes.HasPrefix(b, []byte("cached")) {
			return ""
		}
	}
	return ratelimit.RateLimitResponse_Code_name[int32(message[length+1])]
}
