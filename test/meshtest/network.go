// Package meshtest is a bus in memory for tests and demos of the mesh: a network
// whose links can be cut, slow, lossy, repeating and out of order. Nothing in it runs
// by itself, so it works in synctest bubbles.
package meshtest

import (
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/regiond/regiond/internal/base/signal"
	meshsync "github.com/regiond/regiond/sync"
)

// Capacity is how many messages a Bus holds for its reader, as small as a test
// can overflow and as large as one that reads never does.
const Capacity = 8192

// ErrDown is what Publish answers while a Bus is down, or refuses a message.
var ErrDown = errors.New("the bus is down")

// Link is how messages travel from one region to another, in one direction. The
// zero Link delivers each at once, in order.
type Link struct {
	Cut     bool
	Latency time.Duration
	// Jitter is added to Latency, evenly between 0 and so much. It reorders.
	Jitter time.Duration
	// Loss and Repeat are the shares of messages that are lost or come twice.
	Loss, Repeat float64
}

// Network joins buses. Safe for concurrent use.
type Network struct {
	mu    sync.Mutex
	dice  *rand.Rand
	links map[[2]string]Link
	buses []*Bus
}

// NewNetwork returns one without faults. The seed decides what its faults hit.
func NewNetwork(seed uint64) *Network {
	return &Network{dice: rand.New(rand.NewPCG(seed, 0)), links: map[[2]string]Link{}}
}

// Join gives a process of a region its bus. Processes of one region are joined by
// the link from that region to itself.
func (n *Network) Join(region string) *Bus {
	b := &Bus{
		net: n, region: region,
		messages: make(chan meshsync.Message, Capacity), gaps: make(chan struct{}, 1),
		routes: map[*Bus]*route{},
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.buses = append(n.buses, b)
	return b
}

// Set decides how messages travel from one region to another from now on. What is
// under way still arrives.
func (n *Network) Set(from, to string, l Link) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.links[[2]string{from, to}] = l
}

// SetAll is Set for every direction between the given regions.
func (n *Network) SetAll(l Link, regions ...string) {
	for _, from := range regions {
		for _, to := range regions {
			n.Set(from, to, l)
		}
	}
}

// Bus is one process's end of a Network, a meshsync.Bus. Its own messages do not
// come back to it.
type Bus struct {
	net    *Network
	region string

	messages chan meshsync.Message
	gaps     chan struct{}

	// These belong to net.mu.
	routes map[*Bus]*route // to the others
	down   bool
	gone   bool
	refuse string // prefix of subjects; empty: nothing is refused
	most   int    // bytes of a message; 0: any
	spy    func(meshsync.Message)
}

// Publish implements meshsync.Bus.
func (b *Bus) Publish(subject string, data []byte, header ...meshsync.Field) error {
	n := b.net
	n.mu.Lock()
	defer n.mu.Unlock()
	if b.down || b.gone || b.refuse != "" && strings.HasPrefix(subject, b.refuse) {
		return ErrDown
	}
	if b.most > 0 && len(data) > b.most {
		return meshsync.ErrTooLarge
	}
	msg := meshsync.Message{Subject: subject, Data: append([]byte(nil), data...), Header: slices.Clone(header)}
	if b.spy != nil {
		b.spy(msg)
	}
	for _, to := range n.buses {
		if to != b && to.wants(subject) {
			n.send(b, to, msg)
		}
	}
	return nil
}

// Limit implements meshsync.Bus.
func (b *Bus) Limit() int {
	b.net.mu.Lock()
	defer b.net.mu.Unlock()
	return b.most
}

// Messages implements meshsync.Bus.
func (b *Bus) Messages() <-chan meshsync.Message { return b.messages }

// Gaps implements meshsync.Bus.
func (b *Bus) Gaps() <-chan struct{} { return b.gaps }

// Down takes the process off the network: it can publish nothing and misses what
// others do.
func (b *Bus) Down() {
	b.net.mu.Lock()
	defer b.net.mu.Unlock()
	b.down = true
}

// Up reconnects it, and signals Gaps.
func (b *Bus) Up() {
	b.net.mu.Lock()
	defer b.net.mu.Unlock()
	b.down = false
	signal.Send(b.gaps)
}

// Refuse has Publish fail for subjects with this prefix, as a bus whose queue is
// too full for large messages. An empty prefix ends that.
func (b *Bus) Refuse(prefix string) {
	b.net.mu.Lock()
	defer b.net.mu.Unlock()
	b.refuse = prefix
}

// SetLimit has Publish refuse messages of more than so many bytes from now on; 0 ends that.
func (b *Bus) SetLimit(bytes int) {
	b.net.mu.Lock()
	defer b.net.mu.Unlock()
	b.most = bytes
}

// Leave takes it off for good, as a process that dies.
func (b *Bus) Leave() {
	b.net.mu.Lock()
	defer b.net.mu.Unlock()
	b.gone = true
}

// Spy has f called with each message that this process publishes from now on, before the
// network does anything to it; nil ends that. f must not use the network.
func (b *Bus) Spy(f func(meshsync.Message)) {
	b.net.mu.Lock()
	defer b.net.mu.Unlock()
	b.spy = f
}

// Inject delivers a message to this process at once, as if somebody had sent it.
func (b *Bus) Inject(subject string, data []byte) {
	b.net.mu.Lock()
	defer b.net.mu.Unlock()
	b.deliver(meshsync.Message{Subject: subject, Data: append([]byte(nil), data...)})
}

func (b *Bus) wants(subject string) bool {
	region, _, _ := strings.Cut(b.region, "#") // two processes of a region may have links of their own
	return !b.gone && Subscribed(region, subject)
}

func (b *Bus) deliver(m meshsync.Message) {
	if b.down || b.gone {
		return
	}
	select {
	case b.messages <- m:
	default: // lost
	}
}

// Subscribed reports whether a subject is among the Subscriptions of a region.
func Subscribed(region, subject string) bool {
	words := strings.Split(subject, ".")
	return slices.ContainsFunc(meshsync.Subscriptions(region), func(pattern string) bool {
		return slices.EqualFunc(strings.Split(pattern, "."), words, func(p, word string) bool { return p == "*" || p == word })
	})
}
