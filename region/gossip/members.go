package gossip

import (
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/memberlist"

	"github.com/regiond/regiond/internal/base/signal"
	"github.com/regiond/regiond/quota"
)

// State says whether a process answers. It is the word used in JSON, metrics and
// logs.
//
//	(unknown) ──joins──▶ Alive ──no answer for 4 to 8 s, or it left──▶ Dead ──10 min──▶ (forgotten)
//	                       ▲                                            │
//	                       └────────────── answers again ───────────────┘
type State string

// States of a Member.
const (
	Alive State = "alive" // it answers this process, or another one that answers
	Dead  State = "dead"  // it stopped answering, or left; the bus knows which
)

// Member is one process.
type Member struct {
	quota.Process
	Addr       string // host:port of its gossip
	State      State
	Since      time.Time // when this process first saw the member in this State
	ConfigHash string    // of its configuration in force; "" when it has none
	Version    string
	Self       bool // this process
}

// Name is "<region>/<instance>".
func (m Member) Name() string { return m.Region + "/" + m.Instance }

// nodeName is what memberlist knows a process by. Boot makes each start a node
// of its own: a restart at another address need not wait until the node before
// it is dead.
func nodeName(region, instance string, boot int64) string {
	return fmt.Sprintf("%s/%s/%d", region, instance, boot)
}

// memberOf reads a node's name and metadata, which may come from anybody.
func memberOf(n *memberlist.Node) (Member, error) {
	region, rest, _ := strings.Cut(n.Name, "/")
	i := max(strings.LastIndexByte(rest, '/'), 0)
	instance, digits := rest[:i], strings.TrimPrefix(rest[i:], "/")
	boot, err := strconv.ParseInt(digits, 10, 64)
	if err != nil || boot <= 0 || region == "" || instance == "" || !printable(n.Name) {
		return Member{}, errors.New("its name is not <region>/<instance>/<start time>")
	}
	m := Member{Process: quota.Process{Region: region, Instance: instance, Boot: boot}, Addr: n.Address(), State: Alive}
	m.ConfigHash, m.Version, err = decodeMeta(n.Meta)
	return m, err
}

// A node's metadata is three lines: "1" for the format, the hash of the
// configuration, the version of the program. Later versions may append lines.
// It takes at most 131 of the 512 bytes at which memberlist panics.
const (
	metaFormat  = "1"
	maxMetaText = 64 // bytes of the hash, and of the version
)

func encodeMeta(configHash, version string) []byte {
	return []byte(metaFormat + "\n" + clip(configHash) + "\n" + clip(version))
}

func decodeMeta(b []byte) (configHash, version string, err error) {
	lines := strings.Split(string(b), "\n")
	if len(b) > memberlist.MetaMaxSize || len(lines) < 3 || lines[0] != metaFormat {
		return "", "", errors.New("its metadata is of another program or format")
	}
	for _, text := range lines[1:3] {
		if len(text) > maxMetaText || !printable(text) {
			return "", "", fmt.Errorf("its metadata contains more than %d characters, or unprintable ones", maxMetaText)
		}
	}
	return lines[1], lines[2], nil
}

// clip makes any text one that decodeMeta accepts: a wrong hash is better than
// a process that cannot join.
func clip(text string) string {
	return strings.Map(func(r rune) rune {
		if r <= ' ' || r > '~' {
			return -1
		}
		return r
	}, text[:min(len(text), maxMetaText)])
}

// printable keeps control characters of unknown senders out of logs and terminals.
func printable(text string) bool {
	return strings.IndexFunc(text, func(r rune) bool { return r <= ' ' || r > '~' }) < 0
}

// members is the member table: our copy of memberlist's, which may only be read
// under a lock that memberlist holds while it calls us. The Notify methods are
// called under that lock; they copy, log and signal, and never call memberlist.
type members struct {
	self    string // our node name
	known   func(region string) bool
	refused func(reason string)
	log     *slog.Logger
	changed chan struct{} // for the caller of Changed

	mu     sync.Mutex
	byNode map[string]Member
}

// NotifyAlive refuses a node by returning an error, each time it is mentioned.
func (ms *members) NotifyAlive(n *memberlist.Node) error {
	m, err := memberOf(n)
	if err != nil {
		ms.refused("metadata")
		return err
	}
	if n.Name != ms.self && !ms.known(m.Region) {
		ms.refused("region")
		return fmt.Errorf("the topology here has no region %q", m.Region)
	}
	ms.mu.Lock()
	defer ms.mu.Unlock()
	if _, known := ms.byNode[n.Name]; !known && len(ms.byNode) >= maxMembers {
		ms.refused("full")
		return errors.New("too many members")
	}
	return nil
}

// NotifyJoin is called for a node that is new, or alive again.
func (ms *members) NotifyJoin(n *memberlist.Node) { ms.NotifyUpdate(n) }

// NotifyUpdate is called for new metadata.
func (ms *members) NotifyUpdate(n *memberlist.Node) {
	m, err := memberOf(n)
	if err != nil {
		return // NotifyAlive has refused it
	}
	m.Self = n.Name == ms.self
	ms.mu.Lock()
	defer ms.mu.Unlock()
	ms.put(n.Name, m)
}

// NotifyLeave is called for a node that died or left.
func (ms *members) NotifyLeave(n *memberlist.Node) {
	ms.mu.Lock()
	defer ms.mu.Unlock()
	if m, ok := ms.byNode[n.Name]; ok {
		m.State = Dead
		ms.put(n.Name, m)
	}
}

// put stores a member and drops what it makes obsolete; ms.mu is held.
func (ms *members) put(node string, m Member) {
	old := ms.byNode[node]
	if m.Since = old.Since; old.State != m.State {
		m.Since = time.Now()
	}
	if m == old {
		return
	}
	if old.State != m.State && !m.Self {
		ms.log.Info("gossip: process is "+string(m.State), slog.String("process", m.Name()), slog.String("addr", m.Addr),
			slog.Int64("boot_us", m.Boot), slog.String("version", m.Version), slog.String("config", m.ConfigHash))
	}
	ms.byNode[node] = m
	for other, o := range ms.byNode {
		if obsolete(o, m) {
			delete(ms.byNode, other)
		}
		if obsolete(m, o) {
			delete(ms.byNode, node)
		}
	}
	signal.Send(ms.changed)
}

// obsolete reports whether b is a later start of the same instance and a is dead,
// or must be, since b has its address.
func obsolete(a, b Member) bool {
	return a.Boot < b.Boot && !a.Self && (a.State == Dead || a.Addr == b.Addr) && a.Instance == b.Instance && a.Region == b.Region
}

// forget drops members that have been dead for longer than Remembered.
func (ms *members) forget(now time.Time) {
	ms.mu.Lock()
	defer ms.mu.Unlock()
	before := len(ms.byNode)
	maps.DeleteFunc(ms.byNode, func(_ string, m Member) bool {
		return m.State == Dead && now.Sub(m.Since) > Remembered
	})
	if len(ms.byNode) != before {
		signal.Send(ms.changed)
	}
}

// all returns every member by region, instance and start.
func (ms *members) all() []Member {
	ms.mu.Lock()
	defer ms.mu.Unlock()
	list := make([]Member, 0, len(ms.byNode))
	for _, name := range slices.Sorted(maps.Keys(ms.byNode)) {
		list = append(list, ms.byNode[name])
	}
	return list
}

// addresses returns where members are alive, this process included, and where
// they have died.
func (ms *members) addresses() (alive map[string]bool, dead []string) {
	alive = map[string]bool{}
	for _, m := range ms.all() {
		if m.State == Alive {
			alive[m.Addr] = true
		} else {
			dead = append(dead, m.Addr)
		}
	}
	return alive, dead
}
