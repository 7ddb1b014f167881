package natsbus_test

import (
	"fmt"
	"io"
	"os"
	"testing"

	"github.com/nats-io/nats-server/v2/server"
	"go.uber.org/goleak"
)

// serverEnv turns the test binary into a NATS server that listens there, so that
// tests have a process to kill and to freeze.
const serverEnv = "NATSBUS_TEST_SERVER"

func TestMain(m *testing.M) {
	if address := os.Getenv(serverEnv); address != "" {
		if err := serveNATS(address); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	goleak.VerifyTestMain(m)
}

// serveNATS says where it listens and serves until its standard input ends, which
// it does at the latest with the process that started it.
func serveNATS(address string) error {
	host, port, err := splitAddr(address)
	if err != nil {
		return err
	}
	s, err := server.NewServer(&server.Options{Host: host, Port: port, NoSigs: true, NoLog: true})
	if err != nil {
		return err
	}
	s.Start()
	fmt.Println(s.Addr())
	_, err = io.Copy(io.Discard, os.Stdin)
	return err
}
