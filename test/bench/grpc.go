//go:build linux

package main

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"os"
	"time"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	ratelimit "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
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
			return s.add(name, p, r.redis, newCallClient(p.grpc, conns/each, calls(key, n), each, want))
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
		alternate(rounds, 2_000, 2*time.Second, paced)
		out["call-p99"] = paced.median(p99)
	}
}

// streams are the calls that are sent together on a connection, as a gateway's thread does with those of its clients.
const streams = 8

// calls are the messages of so many values of a key.
func calls(key string, n int) (all [][]byte) {
	for i := range n {
		entry := &common.RateLimitDescriptor_Entry{Key: key, Value: fmt.Sprintf("t%07d", i)}
		message := must(proto.Marshal(&ratelimit.RateLimitRequest{
			Domain: "bench", Descriptors: []*common.RateLimitDescriptor{{Entries: []*common.RateLimitDescriptor_Entry{entry}}},
		}))
		all = append(all, append(binary.BigEndian.AppendUint32([]byte{0}, uint32(len(message))), message...)) //nolint:gosec // it is short
	}
	return all
}

// callConnection is what a connection has over gRPC.
type callConnection struct {
	frames *http2.Framer
	out    bytes.Buffer // what it is yet to send
	id     uint32       // of the newest stream, and 1
	said   []byte       // by the answers
}

// newCallClient is a client of gRPC, with so many calls at a time on each connection.
func newCallClient(addr string, n int, requests [][]byte, each int, want string) *client {
	c := &client{requests: requests, each: each, want: []byte(want), decides: []byte("O")} // in either
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
	c.ask = func(conn *connection) ([]byte, error) { return c.call(conn, headers.Bytes()) }
	return c.open(addr, n)
}

// begin is what a connection begins with.
func (c *connection) begin() *callConnection {
	c.calls = &callConnection{}
	c.calls.out.WriteString(http2.ClientPreface)
	f := http2.NewFramer(&c.calls.out, c.in)
	f.SetReuseFrames()
	check(errors.Join(f.WriteSettings(), f.WriteWindowUpdate(0, math.MaxInt32-1<<16))) // of a connection, and for good
	c.calls.frames = f
	return c.calls
}

// call makes calls and returns what their answers say, once all are there.
func (c *client) call(conn *connection, headers []byte) ([]byte, error) {
	p := conn.calls
	if p == nil {
		p = conn.begin()
	}
	for range c.each {
		p.id += 2
		check(p.frames.WriteHeaders(http2.HeadersFrameParam{StreamID: p.id - 1, BlockFragment: headers, EndHeaders: true}))
		check(p.frames.WriteData(p.id-1, true, c.take(conn)))
	}
	if _, err := p.out.WriteTo(conn); err != nil {
		return nil, err
	}
	p.said = p.said[:0]
	for ended := 0; ended < c.each; {
		frame, err := p.frames.ReadFrame()
		if err != nil {
			return nil, err
		}
		switch f := frame.(type) {
		case *http2.DataFrame:
			p.said = append(append(p.said, said(f.Data())...), ' ')
		case *http2.HeadersFrame:
			if f.StreamEnded() {
				ended++
			}
		case *http2.SettingsFrame: // what is answered to it goes with the next calls
			if !f.IsAck() {
				check(p.frames.WriteSettingsAck())
			}
		case *http2.PingFrame:
			if !f.IsAck() {
				check(p.frames.WritePing(true, f.Data))
			}
		case *http2.GoAwayFrame, *http2.RSTStreamFrame:
			return nil, fmt.Errorf("the server sends %v", f)
		}
	}
	return p.said, nil
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
