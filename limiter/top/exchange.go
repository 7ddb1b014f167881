package top

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/klauspost/compress/s2"

	"github.com/regiond/regiond/quota"
)

const (
	// ShareEvery is how often a process sends what it counted, and forgetAfter how long that counts:
	// two messages may be lost.
	ShareEvery  = 5 * time.Second
	forgetAfter = 3*ShareEvery + time.Second
	// sharedRows is the most rows of each list in a message, and maxShared the most bytes that it has
	// before it is compressed. Names that are long take the place of rows.
	sharedRows = 100
	maxShared  = 128 << 10
	// MaxPeers is how many other processes are counted.
	MaxPeers = 255
)

// ExchangeOptions are what an Exchange is made of; all are required.
type ExchangeOptions struct {
	Recorder *Recorder
	Self     quota.Process
	// Regions lists those of the topology in force, Live the other processes that are received.
	Regions func() []string
	Live    func() []quota.Process
	// Alone is why nothing is sent and what is received is ignored; "" otherwise.
	Alone func() string
	// Send publishes a message for all other processes, in place of one that still waits. It
	// keeps what it is given, and returns at once.
	Send func(message []byte)
}

// Exchange adds what other processes counted to what this one did: each sends its first rows every
// ShareEvery, and the newest message of each counts. Safe for concurrent use.
type Exchange struct {
	ExchangeOptions
	now func() time.Duration // the Recorder's

	mu    sync.Mutex
	peers map[quota.Process]*shared
}

// shared is the newest message of a process.
type shared struct {
	at    time.Duration
	lists [len(kinds)][len(quota.TopWindows)]list
}

// NewExchange returns an Exchange; Run makes it send.
func NewExchange(o ExchangeOptions) *Exchange {
	return &Exchange{ExchangeOptions: o, now: o.Recorder.now, peers: map[quota.Process]*shared{}}
}

// Run sends until ctx ends.
func (x *Exchange) Run(ctx context.Context) error {
	tick := time.NewTicker(ShareEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
			if x.Alone() == "" {
				x.Send(x.message())
			}
		}
	}
}

// Receive takes in the message of another process. On an error nothing has changed.
func (x *Exchange) Receive(from quota.Process, message []byte) error {
	if x.Alone() != "" {
		return nil
	}
	s, err := decode(message)
	if err != nil {
		return fmt.Errorf("counts of %s in %s: %w", from.Instance, from.Region, err)
	}
	s.at = x.now()
	x.mu.Lock()
	defer x.mu.Unlock()
	x.forget()
	if x.peers[from] == nil && len(x.peers) == MaxPeers {
		return fmt.Errorf("counts of %s in %s: there are those of %d processes already", from.Instance, from.Region, MaxPeers)
	}
	x.peers[from] = s
	return nil
}

// forget drops what is too old or of a region that a reload has removed, and all while nothing is shared.
func (x *Exchange) forget() {
	alone, regions := x.Alone() != "", x.Regions()
	for p, s := range x.peers {
		if alone || x.now()-s.at > forgetAfter || !slices.Contains(regions, p.Region) {
			delete(x.peers, p)
		}
	}
}

// Report answers a query by what this process and others counted.
func (x *Exchange) Report(q quota.TopQuery) quota.TopReport {
	lists, counted := []list{x.Recorder.list(q.By, q.Window)}, map[string]bool{x.Self.Region: true}
	window := slices.Index(quota.TopWindows[:], q.Window)
	behind, missing := time.Duration(0), 0
	x.mu.Lock()
	x.forget()
	for p, s := range x.peers {
		if p.Region == x.Self.Region || q.Scope == quota.ScopeGlobal {
			lists, counted[p.Region] = append(lists, s.lists[q.By][window]), true
			behind = max(behind, x.now()-s.at)
		}
	}
	for _, p := range x.Live() {
		if x.peers[p] == nil && (counted[p.Region] || q.Scope == quota.ScopeGlobal) {
			missing++
		}
	}
	x.mu.Unlock()
	v := report(q, lists)
	v.Region, v.BehindMS = x.Self.Region, behind.Milliseconds()
	for _, name := range x.Regions() {
		switch {
		case counted[name]:
			v.Regions = append(v.Regions, name)
		case q.Scope == quota.ScopeGlobal:
			v.Absent = append(v.Absent, name)
		}
	}
	switch {
	case x.Alone() != "":
		v.Notes = append(v.Notes, "Only what this process counted: "+x.Alone()+".")
	case missing > 0:
		v.Notes = append(v.Notes, fmt.Sprintf("Processes that have not sent their counts in the last %v: %d.", forgetAfter, missing))
	}
	return v
}

// message is what this process counted, compressed JSON. A name is that of a usage counter
// (quota.CounterKey.AppendID):
//
//	[{"names": ["acme standard burst ::"], "least": [700], "most": [702], "others": 3, "total": 1000, "covers_ms": 83400}, …]
//
// The lists are those of denied and of used units, each in a minute and in an hour.
type message []messageList

type messageList struct {
	Names    []string `json:"names"`
	Least    []int64  `json:"least"`
	Most     []int64  `json:"most"`
	Others   int64    `json:"others"`
	Total    int64    `json:"total"`
	CoversMS int64    `json:"covers_ms"`
}

func (x *Exchange) message() []byte {
	var all []list
	for _, by := range kinds {
		for _, window := range quota.TopWindows {
			all = append(all, x.Recorder.list(by, window))
		}
	}
	for rows := sharedRows; ; rows /= 2 {
		var m message
		for i := range all {
			all[i].cut(rows)
			m = append(m, encodeList(&all[i]))
		}
		if text, _ := json.Marshal(m); len(text) <= maxShared { // without rows it is
			return s2.Encode(nil, text)
		}
	}
}

func encodeList(l *list) messageList {
	m := messageList{Others: l.others, Total: l.total, CoversMS: l.covers.Milliseconds()}
	for i := range l.rows {
		r := &l.rows[i]
		k := quota.CounterKey{Tenant: r.Tenant, Policy: r.Policy, Limit: r.Limit, Partition: r.Partition}
		m.Names, m.Least, m.Most = append(m.Names, string(k.AppendID(nil))), append(m.Least, r.AtLeast), append(m.Most, r.AtMost)
	}
	return m
}

// decode reads a message, which anybody with the shared key may have written: whatever it is, its
// counts and names are in range, and at most some 30 times maxShared bytes are allocated.
func decode(data []byte) (*shared, error) {
	if n, err := s2.DecodedLen(data); err != nil || n > maxShared {
		return nil, fmt.Errorf("it has %d bytes, at most %d are allowed", n, maxShared)
	}
	text, err := s2.Decode(nil, data)
	if err != nil {
		return nil, fmt.Errorf("decompress: %w", err)
	}
	const lists = len(kinds) * len(quota.TopWindows)
	var m [lists + 1]*messageList // of an array too long, the rest is skipped
	if err := json.Unmarshal(text, &m); err != nil {
		return nil, err
	}
	if slices.Index(m[:], nil) != lists {
		return nil, fmt.Errorf("it does not have %d lists", lists)
	}
	s := &shared{}
	for i := range lists {
		l, err := decodeList(m[i])
		if err != nil {
			return nil, fmt.Errorf("list %d: %w", i, err)
		}
		s.lists[i/len(s.lists[0])][i%len(s.lists[0])] = l
	}
	return s, nil
}

func decodeList(m *messageList) (l list, err error) {
	const longest = 2 * time.Hour
	if len(m.Names) > sharedRows || len(m.Least) != len(m.Names) || len(m.Most) != len(m.Names) {
		return l, fmt.Errorf("%d names, %d and %d counts, at most %d are allowed", len(m.Names), len(m.Least), len(m.Most), sharedRows)
	}
	if m.Others < 0 || m.Others > most || m.Total < 0 || m.Total > most || m.CoversMS < 0 || m.CoversMS > (longest+time.Minute).Milliseconds() {
		return l, errors.New("a sum or a time is out of range")
	}
	l = list{others: m.Others, total: m.Total, covers: time.Duration(m.CoversMS) * time.Millisecond}
	seen := make(map[string]bool, len(m.Names))
	for i, name := range m.Names {
		if m.Least[i] < 0 || m.Least[i] > m.Most[i] || m.Most[i] > most {
			return l, fmt.Errorf("count %d is out of range", i)
		}
		if seen[name] || !validName(name) {
			return l, fmt.Errorf("name %d is none, or is duplicated", i)
		}
		seen[name] = true
		row := parseName(name)
		row.AtLeast, row.AtMost = m.Least[i], m.Most[i]
		l.rows = append(l.rows, row)
	}
	return l, nil
}

// parseName reads the text of a name, without its units.
func parseName(text string) (row quota.TopRow) {
	parts := strings.SplitN(text, " ", 4) // no part has a space
	row.Tenant, row.Policy, row.Limit, row.Partition = parts[0], parts[1], parts[2], parts[3]
	return row
}

// validName reports whether parseName can read a name, and of what it consists.
func validName(text string) bool {
	strange := func(r rune) bool { return r < ' ' || r > '~' || r == '{' || r == '}' }
	if strings.Count(text, " ") != 3 || strings.ContainsFunc(text, strange) {
		return false
	}
	row := parseName(text)
	return strings.Count(row.Partition, ":") >= 2 && (row.Tenant == "" || quota.ValidID(row.Tenant) == nil) && quota.ValidName(row.Policy) == nil && quota.ValidName(row.Limit) == nil
}
