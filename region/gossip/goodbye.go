package gossip

import (
	"errors"
	"fmt"

	"github.com/hashicorp/memberlist"
	"google.golang.org/protobuf/encoding/protowire"
)

// A goodbye is a message of its own, to each process directly: the library
// tells our delegates that a node is gone and not whether it said so, and news
// that follow each other as fast as an end does may overtake.
//
//	┌──────┬────────────┬──────────┐
//	│ 0x01 │ 1 boot, µs │ 2 name   │
//	└──────┴────────────┴──────────┘
type goodbye struct {
	boot int64
	name string
}

const (
	goodbyeFormat    = 1
	maxGoodbye       = 512
	fieldGoodbyeBoot = protowire.Number(1)
	fieldGoodbyeName = protowire.Number(2)
)

func (m goodbye) encode() []byte {
	b := []byte{goodbyeFormat}
	b = protowire.AppendVarint(protowire.AppendTag(b, fieldGoodbyeBoot, protowire.VarintType), uint64(m.boot))
	return protowire.AppendString(protowire.AppendTag(b, fieldGoodbyeName, protowire.BytesType), m.name)
}

// decodeGoodbye reads a message of anybody's. What it says means something only
// where boot and name are those of a member.
func decodeGoodbye(b []byte) (goodbye, error) {
	if len(b) == 0 || len(b) > maxGoodbye || b[0] != goodbyeFormat {
		return goodbye{}, errors.New("not a message of this program, or of a later format")
	}
	var m goodbye
	if err := eachField(b[1:], errors.New("the message is cut off"), m.set); err != nil {
		return goodbye{}, err
	}
	return m, nil
}

// set takes one field, whose value is whole; fields it does not know are skipped.
func (m *goodbye) set(number protowire.Number, kind protowire.Type, value []byte) error {
	switch {
	case number == fieldGoodbyeBoot && kind == protowire.VarintType:
		v, _ := protowire.ConsumeVarint(value)
		m.boot = int64(v)
	case number == fieldGoodbyeName && kind == protowire.BytesType:
		m.name, _ = protowire.ConsumeString(value)
	case number <= fieldGoodbyeName:
		return fmt.Errorf("the message has field %d of another type", number)
	}
	return nil
}

// sayGoodbye tells the others that this end is planned: ourselves, before and
// after the library does, since either may get lost. A second process of a name
// says nothing: it would be taken for the first one's.
func (g *Gossip) sayGoodbye(ml *memberlist.Memberlist) {
	if _, second := g.Conflict(); second {
		return
	}
	message := goodbye{boot: g.options.Boot, name: g.options.name()}.encode()
	tell := func() {
		for _, m := range g.roster.all() {
			if m.State == Alive && !m.Self {
				_ = ml.SendToAddress(memberlist.Address{Addr: m.Addr, Name: m.Name()}, message) // lost: it will notice
			}
		}
	}
	tell()
	_ = ml.Leave(leaveTimeout) // not told in time: the others will notice
	tell()
}

// left takes in a goodbye; r's lock is not held.
func (r *roster) left(g goodbye) {
	r.mu.Lock()
	defer r.mu.Unlock()
	m, known := r.members[g.name]
	if !known || m.Self || m.Boot != g.boot || m.State == Left {
		return
	}
	m.State = Left
	r.put(m)
}
