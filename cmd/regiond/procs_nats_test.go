//go:build unix

package main

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
)

// natsEnv makes of the test binary a NATS server at the address that it holds, so
// that there is a process to kill and to freeze.
const natsEnv = "REGIOND_TEST_NATS"

// serveNATS says where it listens and serves until its standard input ends, which
// it does at the latest with the process that started it.
func serveNATS(addr string) (code int) {
	host, text, err := net.SplitHostPort(addr)
	port, err2 := strconv.Atoi(text)
	if err != nil || err2 != nil || port == 0 {
		fmt.Fprintln(os.Stderr, "NATS: not an address with a port:", addr)
		return 1
	}
	s, err := server.NewServer(&server.Options{
		Host: host, Port: port, NoSigs: true, NoLog: true, PingInterval: time.Second,
	})
	if err != nil {
		fmt.Fprintln(os.Stderr, "NATS:", err)
		return 1
	}
	s.Start()
	if !s.ReadyForConnections(10 * time.Second) {
		fmt.Fprintln(os.Stderr, "NATS: it does not listen on", addr)
		return 1
	}
	fmt.Println(s.Addr())
	_, _ = io.Copy(io.Discard, os.Stdin)
	return 0
}

// natsProcess is a NATS server in a process of its own.
type natsProcess struct {
	cmd   *exec.Cmd
	addr  string
	input io.Closer
}

// startNATS starts a server until the test ends. The port is not one that outgoing
// connections are given: a client that dials a killed server could meet itself.
func startNATS(t *testing.T, addr string) *natsProcess {
	t.Helper()
	n := &natsProcess{cmd: exec.Command(os.Args[0])}
	n.cmd.Env = append(os.Environ(), natsEnv+"="+addr)
	n.cmd.Stderr = os.Stderr
	input, err := n.cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	output, err := n.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := n.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	n.input = input
	t.Cleanup(n.kill)
	line, err := bufio.NewReader(output).ReadString('\n')
	if err != nil {
		t.Fatalf("the NATS server at %s did not start: %v", addr, err)
	}
	n.addr = strings.TrimSpace(line)
	return n
}

func (n *natsProcess) url() string { return "nats://" + n.addr }

// kill ends it as a power cut does, a frozen one too; a second time it does nothing.
func (n *natsProcess) kill() {
	_ = n.cmd.Process.Kill()
	_ = n.cmd.Wait() // "signal: killed"
	_ = n.input.Close()
}

// restart starts it again on the same port.
func (n *natsProcess) restart(t *testing.T) {
	t.Helper()
	n.kill()
	*n = *startNATS(t, n.addr)
}

func (n *natsProcess) signal(t *testing.T, s syscall.Signal) {
	t.Helper()
	if err := n.cmd.Process.Signal(s); err != nil {
		t.Fatal(err)
	}
}
