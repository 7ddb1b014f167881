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

func TestSealedPartitions(t *testing.T) {
	for _, want := range []*quota.CounterKey{
		{Tenant: "acme", Policy: "standard", Limit: "sustained", Partition: "user,ip:2.42,9.192.0.2.1:"},
		{Policy: "standard", Limit: "burst", Partition: "::"}, // of the tenants beyond max_unknown
	} {
		sealed := secretOf(t, "old").Seal(7, want)
		for _, s := range []*wire.Secret{secretOf(t, "old"), secretOf(t, "new", "old")} {
			if got, err := s.Unseal(7, sealed); err != nil || !cmp.Equal(got, want) {
				t.Errorf("%+v, %v, want %+v", got, err, want)
			}
		}
		for name, unseal := range map[string]func() (*quota.CounterKey, error){
			"another key":     func() (*quota.CounterKey, error) { return secretOf(t, "new").Unseal(7, sealed) },
			"another id":      func() (*quota.CounterKey, error) { return secretOf(t, "old").Unseal(8, sealed) },
			"nothing":         func() (*quota.CounterKey, error) { return secretOf(t, "old").Unseal(7, nil) },
			"the nonce alone": func() (*quota.CounterKey, error) { return secretOf(t, "old").Unseal(7, sealed[:24]) },
			"too much":        func() (*quota.CounterKey, error) { return secretOf(t, "old").Unseal(7, make([]byte, 1<<18)) },
			"a changed bit": func() (*quota.CounterKey, error) {
				changed := slices.Clone(sealed)
				changed[30] ^= 1
				return secretOf(t, "old").Unseal(7, changed)
			},
		} {
			if got, err := unseal(); got != nil || reasonOf(err) != wire.ReasonMAC {
				t.Errorf("%s: %+v, %v, want reason mac", name, got, err)
			}
		}
	}
	for _, strange := range []*quota.CounterKey{
		{Tenant: "a b", Policy: "p", Limit: "l"},
		{Tenant: "a}", Policy: "p", Limit: "l"},
		{Tenant: "a", Policy: "P", Limit: "l"},
		{Tenant: "a", Policy: "p", Limit: ""},
		{Tenant: "a", Policy: "p", Limit: "l", Partition: "user:3.a{b:"},
		{Tenant: "a", Policy: "p", Limit: "l", Partition: "user:3.a\nb:"},
	} {
		s := secretOf(t, "old")
		if got, err := s.Unseal(7, s.Seal(7, strange)); got != nil || reasonOf(err) != wire.ReasonRange {
			t.Errorf("%+v arrived as %+v, error %v", strange, got, err)
		}
	}
}

func TestSealedTenants(t *testing.T) {
	s := secretOf(t, "new", "old")
	if got, err := s.UnsealTenant(7, secretOf(t, "old").SealTenant(7, "auth0|x")); got != "auth0|x" || err != nil {
		t.Errorf("%q, %v", got, err)
	}
	partition := &quota.CounterKey{Tenant: "acme", Policy: "standard", Limit: "burst", Partition: "::"}
	for what, row := range map[string]struct {
		sealed []byte
		reason wire.Reason
	}{
		"another key":       {secretOf(t, "other").SealTenant(7, "acme"), wire.ReasonMAC},
		"another id":        {s.SealTenant(8, "acme"), wire.ReasonMAC},
		"a partition":       {s.Seal(7, partition), wire.ReasonRange},
		"no name of one":    {s.SealTenant(7, "a b"), wire.ReasonRange},
		"the empty tenant":  {s.SealTenant(7, ""), wire.ReasonRange},
		"nothing of a text": {nil, wire.ReasonMAC},
	} {
		if got, err := s.UnsealTenant(7, row.sealed); reasonOf(err) != row.reason {
			t.Errorf("%s: %q, %v, want reason %s", what, got, err, row.reason)
		}
	}
	if got, err := s.Unseal(7, s.SealTenant(7, "acme")); reasonOf(err) != wire.ReasonRange {
		t.Errorf("a tenant is read as partition %+v, %v", got, err)
	}
}

func TestSealedTops(t *testing.T) {
	s := secretOf(t, "new", "old")
	large := bytes.Repeat([]byte("x"), 130<<10)
	if got, err := s.UnsealTop(7, secretOf(t, "old").SealTop(7, large)); !bytes.Equal(got, large) || err != nil {
		t.Errorf("%d bytes, %v", len(got), err)
	}
	for what, sealed := range map[string][]byte{
		"another key":   secretOf(t, "other").SealTop(7, large),
		"another seq":   s.SealTop(8, large),
		"a tenant":      s.SealTenant(7, "acme"),
		"nothing":       nil,
		"what is large": s.SealTop(7, bytes.Repeat(large, 2)),
	} {
		if _, err := s.UnsealTop(7, sealed); reasonOf(err) != wire.ReasonMAC {
			t.Errorf("%s: %v", what, err)
		}
	}
	if got, err := s.UnsealTenant(7, s.SealTop(7, []byte("acme"))); reasonOf(err) != wire.ReasonMAC {
		t.Errorf("a Top is read as tenant %q, %v", got, err)
	}
}
