package gossip

import (
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/hashicorp/memberlist"

	"github.com/regiond/regiond/quota"
	"github.com/regiond/regiond/region/members"
)

// nodeName is what memberlist knows a process by. Boot makes each start a node
// of its own: a restart at another address need not wait until the node before
// it is dead.
func nodeName(p quota.Process) string {
	return fmt.Sprintf("%s/%s/%d", p.Region, p.Instance, p.Boot)
}

// memberOf reads a node's name and metadata, which may come from anybody.
//
//	(unknown) ──joins──▶ alive ──no answer for 4 to 8 s, or it left──▶ dead ──10 min──▶ (forgotten)
//	                       ▲                                            │
//	                       └────────────── answers again ───────────────┘
func memberOf(n *memberlist.Node) (m members.Member, err error) {
	region, rest, _ := strings.Cut(n.Name, "/")
	i := max(strings.LastIndexByte(rest, '/'), 0)
	instance, digits := rest[:i], strings.TrimPrefix(rest[i:], "/")
	boot, err := strconv.ParseInt(digits, 10, 64)
	if err != nil || boot <= 0 || region == "" || instance == "" || !printable(n.Name) {
		return m, errors.New("its name is not <region>/<instance>/<start time>")
	}
	m.Process = quota.Process{Region: region, Instance: instance, Boot: boot}
	m.Gossip.Addr = n.Address()
	m.Gossip.ConfigHash, m.Gossip.Version, err = decodeMeta(n.Meta)
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
	return !strings.ContainsFunc(text, func(r rune) bool { return r <= ' ' || r > '~' })
}

// table is gossip's side of the table of processes: a copy of what memberlist has, which may
// only be read under a lock that memberlist holds while it calls us. The Notify methods are
// called under that lock; they copy, log and signal, and never call memberlist.
type table struct {
	*members.Table
	known   func(region string) bool
	refused func(reason string)
	log     *slog.Logger
}

// NotifyAlive refuses a node by returning an error, each time it is mentioned.
func (t *table) NotifyAlive(n *memberlist.Node) error {
	m, err := memberOf(n)
	if err != nil {
		t.refused("metadata")
		return err
	}
	if m.Process != t.Self && !t.known(m.Region) {
		t.refused("region")
		return fmt.Errorf("the topology here has no region %q", m.Region)
	}
	if t.full(m.Process) {
		t.refused("full")
		return errors.New("too many members")
	}
	return nil
}

// full reports whether there is no room for a process, which gossip does not know yet.
func (t *table) full(p quota.Process) bool {
	t.Lock()
	defer t.Unlock()
	n := 0
	for _, m := range t.All {
		if m.Gossip.State != "" {
			n++
		}
	}
	e := t.All[p]
	return n >= maxMembers && (e == nil || e.Gossip.State == "")
}

// NotifyJoin is called for a node that is new, or alive again.
func (t *table) NotifyJoin(n *memberlist.Node) { t.NotifyUpdate(n) }

// NotifyUpdate is called for new metadata.
func (t *table) NotifyUpdate(n *memberlist.Node) { t.put(n, members.Alive) }

// NotifyLeave is called for a node that died or left.
func (t *table) NotifyLeave(n *memberlist.Node) { t.put(n, members.Dead) }

// put notes what gossip has of a process, drops what that makes obsolete, and logs another state.
func (t *table) put(n *memberlist.Node, state members.Word) {
	m, err := memberOf(n)
	if m.Gossip.State = state; err != nil || !t.note(&m) || m.Process == t.Self { // NotifyAlive has refused it, or it is no news
		return
	}
	t.log.Info("gossip: process is "+string(state), slog.String("process", m.Name()), slog.String("addr", m.Gossip.Addr),
		slog.Int64("boot_us", m.Boot), slog.String("version", m.Gossip.Version), slog.String("config", m.Gossip.ConfigHash))
}

// note is put but for the log. It reports whether the process's state is another one.
func (t *table) note(m *members.Member) (changed bool) {
	t.Lock()
	defer t.Unlock()
	e := t.Entry(m.Process)
	defer t.Prune(e)
	if e.Gossip.State == "" && m.Gossip.State == members.Dead {
		return false // it was refused, or is forgotten
	}
	changed = e.Gossip.State != m.Gossip.State
	if m.Gossip.Since = e.Gossip.Since; changed {
		m.Gossip.Since = time.Now().UTC()
	}
	if e.Gossip == m.Gossip {
		return false
	}
	e.Gossip = m.Gossip
	for _, o := range t.All {
		if t.obsolete(o, m) {
			o.Gossip = members.Gossip{}
			t.Prune(o)
		}
		if t.obsolete(m, o) {
			e.Gossip = members.Gossip{}
		}
	}
	t.Signal()
	return changed
}

// obsolete reports whether b is a later start of the same instance and a is dead,
// or must be, since b has its address.
func (t *table) obsolete(a, b *members.Member) bool {
	return a.Boot < b.Boot && a.Process != t.Self && a.Name() == b.Name() && a.Gossip.State != "" && b.Gossip.State != "" &&
		(a.Gossip.State == members.Dead || a.Gossip.Addr == b.Gossip.Addr)
}

// forget drops what gossip has of processes that have been dead for longer than Remembered.
func (t *table) forget(now time.Time) {
	t.Lock()
	defer t.Unlock()
	for _, m := range t.All {
		if m.Gossip.State == members.Dead && now.Sub(m.Gossip.Since) > Remembered {
			m.Gossip = members.Gossip{}
			t.Prune(m)
			t.Signal()
		}
	}
}

// all returns every process that gossip knows, this one included, by region, instance and start.
func (t *table) all() (all []members.Member) {
	t.Lock()
	defer t.Unlock()
	for _, m := range t.All {
		if m.Gossip.State != "" {
			all = append(all, *m)
		}
	}
	slices.SortFunc(all, func(a, b members.Member) int { return members.Compare(a.Process, b.Process) })
	return all
}

// addresses returns where members are alive, this process included, and where
// they have died.
func (t *table) addresses() (alive map[string]bool, dead []string) {
	alive = map[string]bool{}
	for _, m := range t.all() {
		if m.Gossip.State == members.Alive {
			alive[m.Gossip.Addr] = true
		} else {
			dead = append(dead, m.Gossip.Addr)
		}
	}
	return alive, dead
}
