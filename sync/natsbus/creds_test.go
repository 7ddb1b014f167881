package natsbus_test

import (
	"errors"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/nats-io/jwt/v2"
	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nkeys"

	"github.com/regiond/regiond/sync/natsbus"
	"github.com/regiond/regiond/test/capture"
)

// operator is who signs the accounts and users of a server, as `nsc` does.
func operator(t *testing.T) (options *server.Options, credentials func() []byte) {
	t.Helper()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	key := func(create func() (nkeys.KeyPair, error)) (k nkeys.KeyPair, public string) {
		t.Helper()
		k, err := create()
		must(err)
		public, err = k.PublicKey()
		must(err)
		return k, public
	}
	signer, signerName := key(nkeys.CreateOperator)
	account, accountName := key(nkeys.CreateAccount)
	text, err := jwt.NewAccountClaims(accountName).Encode(signer)
	must(err)
	accounts := &server.MemAccResolver{}
	must(accounts.Store(accountName, text))
	options = &server.Options{
		Host: "127.0.0.1", Port: server.RANDOM_PORT, NoLog: true, NoSigs: true,
		TrustedOperators: []*jwt.OperatorClaims{jwt.NewOperatorClaims(signerName)}, AccountResolver: accounts,
	}
	return options, func() []byte {
		t.Helper()
		user, userName := key(nkeys.CreateUser)
		text, err := jwt.NewUserClaims(userName).Encode(account)
		must(err)
		seed, err := user.Seed()
		must(err)
		both, err := jwt.FormatUserConfig(text, seed)
		must(err)
		return both
	}
}

// TestCredentials: they are read again for each connection, and those that cannot be read, or are of somebody else, are tried
// until they are mended.
func TestCredentials(t *testing.T) {
	t.Parallel()
	options, credentials := operator(t)
	_, address := serve(t, options)
	_, stranger := operator(t)
	var content atomic.Pointer[[]byte] // nil cannot be read
	log := &capture.Log{}
	url := "nats://" + address
	eu, _ := startBus(t, natsbus.Options{URLs: []string{url}, Region: "eu", Logger: logger(log), Creds: func() ([]byte, error) {
		if c := content.Load(); c != nil {
			return *c, nil
		}
		return nil, errors.New("it is a FIFO")
	}})
	lasts := func(what string) {
		t.Helper()
		await(t, what, func() bool { return strings.Contains(eu.Status().LastError, what) })
		if eu.Status().Connected {
			t.Error("it is connected")
		}
	}
	lasts("it is a FIFO")
	wrong := stranger()
	content.Store(&wrong)
	lasts("Authorization Violation")
	right, other := credentials(), credentials()
	content.Store(&right)
	us, _ := startBus(t, natsbus.Options{URLs: []string{url}, Region: "us", Logger: logger(log), Creds: func() ([]byte, error) {
		return other, nil
	}})
	receive(t, eu.Gaps(), "the connection")
	receive(t, us.Gaps(), "the connection")
	crosses(t, eu, us, usageEU)
}
