package wire_test

import (
	"bytes"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/regiond/regiond/quota"
	"github.com/regiond/regiond/sync/wire"
)

// secretOf derives a secret from the named keys, the one to use first.
func secretOf(t testing.TB, keys ...string) *wire.Secret {
	t.Helper()
	var shared [][]byte
	for _, k := range keys {
		shared = append(shared, []byte(k))
	}
	s, err := wire.NewSecret(shared, "prod")
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// A want, a Reset and a Top, each with what is sealed of it, and its number.
func sealedWant(id uint64, key *quota.CounterKey, sealed []byte) *wire.Loans {
	return &wire.Loans{Wants: []wire.Want{{PartitionID: id, Partition: key, Sealed: sealed}}}
}

func sealedReset(id uint64, tenant string, sealed []byte) *wire.Reset {
	return &wire.Reset{ID: id, Tenant: tenant, Sealed: sealed}
}

func sealedTop(seq uint64, payload, sealed []byte) *wire.Top {
	return &wire.Top{Head: wire.Head{Seq: seq}, Payload: payload, Sealed: sealed}
}

// seal is what a key makes of what is sealed of a message.
func seal(t *testing.T, key string, m wire.Message) []byte {
	secretOf(t, key).Seal(m)
	switch m := m.(type) {
	case *wire.Loans:
		return m.Wants[0].Sealed
	case *wire.Reset:
		return m.Sealed
	}
	return m.(*wire.Top).Sealed
}

// unread is a message as it arrives.
func unread(m wire.Message, sealed []byte) wire.Message {
	switch m.(type) {
	case *wire.Loans:
		return sealedWant(7, nil, sealed)
	case *wire.Reset:
		return sealedReset(7, "", sealed)
	}
	return sealedTop(7, nil, sealed)
}

var (
	ofATenant = &quota.CounterKey{Tenant: "acme", Policy: "standard", Limit: "sustained", Partition: "user,ip:2.42,9.192.0.2.1:", WindowUS: minute}
	ofOthers  = &quota.CounterKey{Policy: "standard", Limit: "burst", Partition: "::", WindowUS: minute} // of the tenants beyond max_unknown
	large     = bytes.Repeat([]byte("x"), 130<<10)
)

// Whoever has the key reads what was sealed, also by a key that is being replaced.
func TestSealed(t *testing.T) {
	for _, m := range []wire.Message{sealedWant(7, ofATenant, nil), sealedWant(7, ofOthers, nil), sealedReset(7, "auth0|x", nil), sealedTop(7, large, nil)} {
		sealed := seal(t, "old", m)
		for _, keys := range [][]string{{"old"}, {"new", "old"}} {
			got := unread(m, sealed)
			if err := secretOf(t, keys...).Unseal(got); err != nil || !cmp.Equal(got, m) {
				t.Errorf("%T by %v: %v, or it was changed", m, keys, err)
			}
		}
	}
}

func TestSealedByOthersIsRefused(t *testing.T) {
	partition, tenant, top := seal(t, "old", sealedWant(7, ofATenant, nil)), seal(t, "old", sealedReset(7, "acme", nil)), seal(t, "old", sealedTop(7, large, nil))
	changed := slices.Clone(partition)
	changed[30] ^= 1
	for name, row := range map[string]struct {
		m      wire.Message
		reason wire.Reason
	}{
		"another key":             {sealedWant(7, nil, seal(t, "other", sealedWant(7, ofATenant, nil))), wire.ReasonMAC},
		"another id":              {sealedWant(8, nil, partition), wire.ReasonMAC},
		"nothing":                 {sealedWant(7, nil, []byte{}), wire.ReasonMAC},
		"the nonce alone":         {sealedWant(7, nil, partition[:24]), wire.ReasonMAC},
		"too much":                {sealedWant(7, nil, make([]byte, 1<<18)), wire.ReasonMAC},
		"a changed bit":           {sealedWant(7, nil, changed), wire.ReasonMAC},
		"a tenant as partition":   {sealedWant(7, nil, tenant), wire.ReasonRange},
		"a tenant by another key": {sealedReset(7, "", seal(t, "other", sealedReset(7, "acme", nil))), wire.ReasonMAC},
		"a tenant of another id":  {sealedReset(8, "", tenant), wire.ReasonMAC},
		"a partition as tenant":   {sealedReset(7, "", partition), wire.ReasonRange},
		"no tenant's name":        {sealedReset(7, "", seal(t, "old", sealedReset(7, "a b", nil))), wire.ReasonRange},
		"the empty tenant":        {sealedReset(7, "", seal(t, "old", sealedReset(7, "", nil))), wire.ReasonRange},
		"no tenant":               {sealedReset(7, "", nil), wire.ReasonMAC},
		"a Top as tenant":         {sealedReset(7, "", seal(t, "old", sealedTop(7, []byte("acme"), nil))), wire.ReasonMAC},
		"a Top by another key":    {sealedTop(7, nil, seal(t, "other", sealedTop(7, large, nil))), wire.ReasonMAC},
		"a Top of another number": {sealedTop(8, nil, top), wire.ReasonMAC},
		"a tenant as Top":         {sealedTop(7, nil, tenant), wire.ReasonMAC},
		"no Top":                  {sealedTop(7, nil, nil), wire.ReasonMAC},
		"a Top that is too large": {sealedTop(7, nil, seal(t, "old", sealedTop(7, bytes.Repeat(large, 2), nil))), wire.ReasonMAC},
	} {
		if err := secretOf(t, "old").Unseal(row.m); reasonOf(err) != row.reason {
			t.Errorf("%s: %v, want reason %s", name, err, row.reason)
		}
	}
	for _, strange := range []*quota.CounterKey{
		{Tenant: "a b", Policy: "p", Limit: "l", WindowUS: minute},
		{Tenant: "a}", Policy: "p", Limit: "l", WindowUS: minute},
		{Tenant: "a", Policy: "P", Limit: "l", WindowUS: minute},
		{Tenant: "a", Policy: "p", Limit: "", WindowUS: minute},
		{Tenant: "a", Policy: "p", Limit: "l", Partition: "user:3.a{b:", WindowUS: minute},
		{Tenant: "a", Policy: "p", Limit: "l", Partition: "user:3.a\nb:", WindowUS: minute},
		{Tenant: "a", Policy: "p", Limit: "l", WindowUS: minute, Calendar: "fortnight-1-UTC"},
		{Tenant: "a", Policy: "p", Limit: "l", WindowUS: 0},
		{Tenant: "a", Policy: "p", Limit: "l", WindowUS: quota.MaxWindow.Microseconds() + 1},
	} {
		m := sealedWant(7, strange, nil)
		secretOf(t, "old").Seal(m)
		if err := secretOf(t, "old").Unseal(m); reasonOf(err) != wire.ReasonRange {
			t.Errorf("%+v arrived as %+v, error %v", strange, m.Wants[0].Partition, err)
		}
	}
}
