package natsbus_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"

	meshsync "github.com/regiond/regiond/sync"
	"github.com/regiond/regiond/sync/natsbus"
)

// TestHeaderCrosses: a header arrives as it was sent, and a message without one has
// none; what others make too large arrives without.
func TestHeaderCrosses(t *testing.T) {
	server, _ := startEmbedded(t, natsbus.EmbeddedOptions{Name: "around", ClientAddr: "127.0.0.1:0"})
	eu, _ := startBus(t, natsbus.Options{URLs: []string{"nats://" + server.ClientAddr().String()}, Region: "eu"})
	us, _ := startBus(t, natsbus.Options{URLs: []string{"nats://" + server.ClientAddr().String()}, Region: "us"})
	crosses(t, eu, us, usageEU)
	sent := []meshsync.Field{{Name: "traceparent", Value: "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"}, {Name: "tracestate", Value: "a=1,b=2"}}
	for _, header := range [][]meshsync.Field{sent, nil, sent[:1]} {
		if err := eu.Publish(usageEU, []byte("marked"), header...); err != nil {
			t.Fatal(err)
		}
		m := marked(t, us)
		slices.SortFunc(m.Header, func(a, b meshsync.Field) int { return strings.Compare(a.Name, b.Name) })
		if !slices.Equal(m.Header, header) || (header == nil) != (m.Header == nil) {
			t.Errorf("%v arrived as %v", header, m.Header)
		}
	}

	nc, err := nats.Connect("nats://" + server.ClientAddr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	for _, header := range []nats.Header{
		{"traceparent": {strings.Repeat("x", meshsync.MaxFieldBytes)}},
		{"a": {"1"}, "b": {"2"}, "c": {"3"}, "d": {"4"}, "e": {"5"}},
		{"a": {"1", "2", "3", "4", "5"}},
	} {
		if err := nc.PublishMsg(&nats.Msg{Subject: usageEU, Data: []byte("marked"), Header: header}); err != nil {
			t.Fatal(err)
		}
		if m := marked(t, us); m.Header != nil {
			t.Errorf("a header of %d fields arrived as %d", len(header), len(m.Header))
		}
	}
}

// marked waits for the next message of the test's own.
func marked(t *testing.T, b *natsbus.Bus) meshsync.Message {
	t.Helper()
	for {
		if m := receive(t, b.Messages(), "the message"); string(m.Data) == "marked" {
			return m
		}
	}
}

// TestHeaderCounts: what the header takes is part of what the server allows.
func TestHeaderCounts(t *testing.T) {
	server, _ := startEmbedded(t, natsbus.EmbeddedOptions{Name: "around"})
	eu, _ := startBus(t, natsbus.Options{Server: server, Region: "eu"})
	await(t, "it is connected", eu.Connected)
	if err := eu.Publish(usageEU, make([]byte, natsbus.MaxMessage)); err != nil {
		t.Errorf("without a header: %v", err)
	}
	if err := eu.Publish(usageEU, make([]byte, natsbus.MaxMessage), meshsync.Field{Name: "a", Value: "b"}); err == nil {
		t.Error("with a header it is too large, and was taken")
	}
}
