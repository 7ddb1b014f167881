package gossip

import (
	"fmt"
	"strings"
	"time"

	"github.com/hashicorp/memberlist"
)

// State is what is known of a process's life.
//
//	        heard of           goodbye
//	(none) ─────────▶ Alive ────────────▶ Left ──10 min──▶ (forgotten)
//	                  │  ▲                 ▲                    ▲
//	  no sign of life ▼  │ heard again     │ goodbye, overtaken │
//	                  Dead ────────────────┴───────10 min───────┘
//
// A new start under the same name is Alive again, whatever the last one was.
type State uint8

// States of a Member.
const (
	Alive State = iota + 1 // it answers, or somebody who answers vouches for it
	Dead                   // it stopped answering without a word
	Left                   // it said that it was going
)

// String is the word for people and for JSON.
func (s State) String() string {
	switch s {
	case Alive:
		return "alive"
	case Dead:
		return "dead"
	case Left:
		return "left"
	}
	return fmt.Sprintf("State(%d)", uint8(s))
}

// MarshalText writes String.
func (s State) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// Member is one process, as a value: it shares nothing with the library.
type Member struct {
	Region, Instance string
	Boot             int64  // when the process started, µs since the epoch, by its own account
	Addr             string // host:port at which it gossips
	State            State
	Since            time.Time // when this State (of this Boot) was first seen here
	ConfigHash       string    // of the configuration in force there; "" when it says none
	Version          string
	Self             bool // this process
}

// Name is "<region>/<instance>", which no two processes may share.
func (m Member) Name() string { return m.Region + "/" + m.Instance }

// startedBefore says which of two namesakes was first. Every process must come
// to the same answer, so a tie goes to the smaller address.
func (m Member) startedBefore(o Member) bool {
	if m.Boot != o.Boot {
		return m.Boot < o.Boot
	}
	return m.Addr < o.Addr
}

// memberOf reads what a node says of itself. The name is the node's, the rest
// its metadata.
func memberOf(n *memberlist.Node) (Member, error) {
	region, instance, ok := strings.Cut(n.Name, "/")
	if !ok || region == "" || instance == "" {
		return Member{}, fmt.Errorf("its name is not <region>/<instance>")
	}
	md, err := decodeMeta(n.Meta)
	if err != nil {
		return Member{}, err
	}
	return Member{
		Region: region, Instance: instance, Addr: n.Address(), State: Alive,
		Boot: md.boot, ConfigHash: md.configHash, Version: md.version,
	}, nil
}
