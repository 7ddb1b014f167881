package state

import (
	"strconv"
	"strings"
	"time"

	"github.com/regiond/regiond/quota"
	"github.com/regiond/regiond/region/members"
)

// observe notes the entries of the other processes, 'TIME turn regions epoch' each. After a time
// without the store each has GoneAfter anew.
func (s *State) observe(fields []string) {
	now, t := max(s.o.Now(), 1), s.o.Members
	t.Lock()
	defer t.Unlock()
	read := make(map[quota.Process]string, len(fields)/2)
	for i := 0; i+1 < len(fields); i += 2 {
		name, alone := strings.CutPrefix(fields[i], "alone:")
		boot, instance, _ := strings.Cut(name, ":")
		if run, err := strconv.ParseInt(boot, 10, 64); err == nil && alone == s.o.Alone {
			p := quota.Process{Region: t.Self.Region, Instance: instance, Boot: run}
			t.Entry(p)
			read[p] = fields[i+1]
		}
	}
	for p, m := range t.All {
		switch value := read[p]; {
		case value == "":
			m.Store = members.Store{Read: m.Store.Read}
			t.Prune(m)
		case m.Store.Entry != value || s.failed:
			m.Store.Moved = m.Store.Entry != "" && m.Store.Entry != value
			m.Store.Entry, m.Store.At, m.Store.Sees = value, now, nil
			if words := strings.Fields(value); len(words) == 4 && words[2] != "-" {
				m.Store.Sees = strings.Split(words[2], ",")
			}
		}
	}
}

// judge notes which processes of our region are alive, now that the store was read.
func (s *State) judge(now time.Duration) {
	t := s.o.Members
	t.Lock()
	defer t.Unlock()
	t.StoreRead = true
	for p, m := range t.All {
		if p.Region == t.Self.Region {
			m.Store.Read, m.Store.Alive = true, m.Store.Entry != "" && now-m.Store.At <= GoneAfter
		}
	}
}

// others is what the hash has of other processes, alive or not.
func (s *State) others() (all []members.Store) {
	s.o.Members.Lock()
	defer s.o.Members.Unlock()
	for _, m := range s.o.Members.All {
		if m.Store.Entry != "" {
			all = append(all, m.Store)
		}
	}
	return all
}
