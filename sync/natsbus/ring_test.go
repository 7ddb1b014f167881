package natsbus

import (
	"slices"
	"testing"

	"pgregory.net/rapid"

	meshsync "github.com/regiond/regiond/sync"
)

// The ring is a slice that refuses what is too much, without moving anything.
func TestRingIsASlice(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		messages, bytes := rapid.IntRange(1, 8).Draw(t, "messages"), rapid.IntRange(0, 64).Draw(t, "bytes")
		r := newRing(messages, bytes)
		var twin []meshsync.Message
		held := func() (n int) {
			for _, m := range twin {
				n += len(m.Subject) + len(m.Data)
			}
			return n
		}
		t.Repeat(map[string]func(*rapid.T){
			"push": func(t *rapid.T) {
				m := meshsync.Message{Subject: rapid.StringN(0, 3, -1).Draw(t, "subject"), Data: rapid.SliceOfN(rapid.Byte(), 0, 12).Draw(t, "data")}
				fits := len(twin) < messages && held()+len(m.Subject)+len(m.Data) <= bytes
				if got := r.push(m); got != fits {
					t.Fatalf("push tells %v, want %v", got, fits)
				}
				if fits {
					twin = append(twin, m)
				}
			},
			"pop": func(t *rapid.T) {
				if len(twin) == 0 {
					return
				}
				front, got := r.front(), r.pop()
				if !same(front, twin[0]) || !same(got, twin[0]) {
					t.Fatalf("front %v, pop %v, want %v", front, got, twin[0])
				}
				twin = twin[1:]
			},
			"clear": func(t *rapid.T) {
				if got := r.clear(); got != len(twin) {
					t.Fatalf("clear forgot %d, want %d", got, len(twin))
				}
				twin = nil
			},
			"": func(t *rapid.T) {
				if r.n != len(twin) || r.bytes != held() {
					t.Fatalf("ring has %d messages of %d bytes, want %d of %d", r.n, r.bytes, len(twin), held())
				}
			},
		})
	})
}

func same(a, b meshsync.Message) bool { return a.Subject == b.Subject && slices.Equal(a.Data, b.Data) }
