//go:build compose

package compose

import (
	"bufio"
	"fmt"
	"io"
	"os/exec"
	"strings"
	"testing"
)

// neighbour is a container of its own beside a region's NATS, which speaks the client
// protocol of NATS as an attacker would: by hand.
type neighbour struct {
	t     *testing.T
	input io.WriteCloser
	lines *bufio.Scanner
}

// neighbour joins a region's network and connects as that user, "" for nobody.
func (p *project) neighbour(t *testing.T, region, user, password string) *neighbour {
	t.Helper()
	cmd := exec.CommandContext(p.ctx, "docker", "run", "--rm", "--interactive", "--network", p.name+"_"+region,
		"--entrypoint", "nc", "nats:2.15-alpine", "nats."+region, "4222")
	input, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	output, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	n := &neighbour{t: t, input: input, lines: bufio.NewScanner(output)}
	t.Cleanup(func() {
		_ = input.Close()
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // "signal: killed", or that the server closed
	})
	n.until("INFO ")
	login := ""
	if user != "" {
		login = fmt.Sprintf(`, "user": %q, "pass": %q`, user, password)
	}
	n.send(fmt.Sprintf(`CONNECT {"verbose": false, "pedantic": false%s}`, login))
	return n
}

// send writes a line; until notices what was not written.
func (n *neighbour) send(line string) { _, _ = io.WriteString(n.input, line+"\r\n") }

// until reads up to a line that begins so, and returns what came before it. The end of
// the connection fails the test.
func (n *neighbour) until(prefix string) (before []string) {
	n.t.Helper()
	for n.lines.Scan() {
		if strings.HasPrefix(n.lines.Text(), prefix) {
			return before
		}
		before = append(before, n.lines.Text())
	}
	n.t.Fatalf("NATS closed the connection and sent no %q, but %q", prefix, before)
	return nil
}

// rest is all that comes until the server closes the connection.
func (n *neighbour) rest() (lines []string) {
	for n.lines.Scan() {
		lines = append(lines, n.lines.Text())
	}
	return lines
}

// natsUsers looks at eu-west's NATS from a container that was not meant to be there.
func natsUsers(t *testing.T, p *project) {
	password := func(region string) string { return p.secret(t, "nats-"+region+".password") }
	for name, who := range map[string][2]string{
		"no password":                           {"", ""},
		"the user and no password":              {"eu-west", ""},
		"a wrong password":                      {"eu-west", "wrong"},
		"the password of another region":        {"eu-west", password("us-east")},
		"the user and password of another":      {"us-east", password("us-east")},
		"the user of gateways and no password":  {"gateway", ""},
		"the right password and no such user":   {"regiond", password("eu-west")},
		"the right password for another region": {"us-east", password("eu-west")},
	} {
		n := p.neighbour(t, "eu-west", who[0], who[1])
		n.send("SUB rl.v1.> 1\r\nPING")
		if got := n.rest(); len(got) != 1 || got[0] != "-ERR 'Authorization Violation'" {
			t.Errorf("a neighbour with %s receives %q, want the refusal alone", name, got)
		}
	}

	// With the region's own password it is that region, and no other.
	n := p.neighbour(t, "eu-west", "eu-west", password("eu-west"))
	n.send("SUB rl.v1.usage.* 1\r\nPING")
	n.until("PONG")
	for subject, may := range map[string]bool{
		"rl.v1.usage.eu-west":           true,
		"rl.v1.reset.eu-west":           true,
		"rl.v1.reset.us-east":           false,
		"rl.v1.top.eu-west":             true,
		"rl.v1.top.us-east":             false,
		"rl.v1.usage.us-east":           false,
		"rl.v1.heartbeat.us-east":       false,
		"rl.v1.loan.us-east._all":       false,
		"rl.v1.loan.ap-south.eu-west":   false,
		"rl.v1.usage.ap-south":          false,
		"rl.v1.anything":                false,
		"$SYS.REQ.SERVER.PING.CONFIGZ":  false,
		"rl.v1.usage.eu-west.something": false,
	} {
		n.send("PUB " + subject + " 0\r\n\r\nPING")
		got := strings.Join(n.until("PONG"), "\n")
		if refused := strings.Contains(got, "-ERR 'Permissions Violation for Publish to"); refused == may {
			t.Errorf("eu-west publishes %s: refused %v, want %v (%s)", subject, refused, !may, got)
		}
	}
	for _, subject := range []string{"rl.v1.>", "rl.v1.snapshot.us-east", ">"} {
		n.send("SUB " + subject + " 9\r\nPING")
		if got := strings.Join(n.until("PONG"), "\n"); !strings.Contains(got, "-ERR 'Permissions Violation for Subscription to") {
			t.Errorf("eu-west subscribes to %s: %q, want a refusal", subject, got)
		}
	}
}
