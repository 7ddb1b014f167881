package natsbus_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/regiond/regiond/sync/natsbus"
)

// userList is a server whose list of users is a file that is read again.
type userList struct {
	t      *testing.T
	file   string
	server *server.Server
}

const euUser = "eu-user"

func (u *userList) config(password string) *server.Options {
	u.t.Helper()
	write(u.t, u.file, fmt.Sprintf(`
		listen: "127.0.0.1:-1"
		authorization: { users: [{user: %s, password: %q}, {user: us-user, password: us-secret}] }`, euUser, password))
	opts, err := server.ProcessConfigFile(u.file)
	if err != nil {
		u.t.Fatal(err)
	}
	opts.NoSigs, opts.NoLog = true, true
	return opts
}

func serveUsers(t *testing.T, password string) *userList {
	t.Helper()
	u := &userList{t: t, file: filepath.Join(t.TempDir(), "nats.conf")}
	var err error
	if u.server, err = server.NewServer(u.config(password)); err != nil {
		t.Fatal(err)
	}
	u.server.Start()
	t.Cleanup(func() {
		u.server.Shutdown()
		u.server.WaitForShutdown()
	})
	return u
}

// reload does what SIGHUP does.
func (u *userList) reload(password string) {
	u.t.Helper()
	if err := u.server.ReloadOptions(u.config(password)); err != nil {
		u.t.Fatal(err)
	}
}

func (u *userList) url() string { return "nats://" + u.server.Addr().String() }

func write(t *testing.T, file, text string) {
	t.Helper()
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// read is how the program reads a password.
func read(file string) func() (string, error) {
	return func() (string, error) {
		text, err := os.ReadFile(file)
		return strings.TrimSpace(string(text)), err
	}
}

// A password is replaced in its file first, which disturbs nothing, and then at the
// server, which ends the connection. The next one uses the new password: what is lost was
// published in that one moment, and everything before and after it arrives in order.
func TestPasswordIsReplaced(t *testing.T) {
	t.Parallel()
	u := serveUsers(t, "old-secret")
	dir := t.TempDir()
	log, password, other := &logBuffer{}, filepath.Join(dir, "eu"), filepath.Join(dir, "us")
	write(t, password, "old-secret\n")
	write(t, other, "us-secret")
	eu, _ := startBus(t, natsbus.Options{URLs: []string{u.url()}, Region: "eu", Username: euUser, Password: read(password), Logger: log.logger()})
	us, _ := startBus(t, natsbus.Options{URLs: []string{u.url()}, Region: "us", Username: "us-user", Password: read(other), Logger: log.logger()})
	crosses(t, eu, us, usageEU)
	crosses(t, us, eu, usageUS)
	receive(t, eu.Gaps(), "the first connection is a gap")

	// accepted[n] reports whether the bus took message n.
	var accepted []bool
	send := func() (n int) {
		n = len(accepted)
		err := eu.Publish(usageEU, binary.BigEndian.AppendUint32(nil, uint32(n)))
		if err != nil && !errors.Is(err, natsbus.ErrDisconnected) {
			t.Fatal(err)
		}
		accepted = append(accepted, err == nil)
		return n
	}
	arrived := map[int]bool{}
	last := -1
	upTo := func(n int) {
		t.Helper()
		for last < n {
			m := int(binary.BigEndian.Uint32(receive(t, us.Messages(), fmt.Sprintf("message %d", n)).Data))
			if m <= last {
				t.Fatalf("message %d arrived after %d", m, last)
			}
			last = m
			arrived[m] = true
		}
	}

	write(t, password, "new-secret\r\n")
	var before int
	for range 100 {
		before = send()
	}
	upTo(before)
	if len(arrived) != 100 || len(eu.Gaps()) != 0 {
		t.Fatalf("%d of 100 messages arrived after the file was replaced, %d gaps", len(arrived), len(eu.Gaps()))
	}

	u.reload("new-secret")
	start := time.Now()
	await(t, "the next connection", func() bool {
		send()
		return len(eu.Gaps()) > 0
	})
	t.Logf("connected with the new password after %v", time.Since(start).Round(time.Millisecond))
	after := len(accepted)
	for range 99 {
		send()
	}
	upTo(send())
	for n := after; n < len(accepted); n++ {
		if !accepted[n] || !arrived[n] {
			t.Fatalf("message %d, after the gap: accepted %v, arrived %v", n, accepted[n], arrived[n])
		}
	}
	var lost []int
	for n := range accepted {
		if !arrived[n] {
			lost = append(lost, n)
		}
	}
	if len(lost) > 0 && lost[len(lost)-1]-lost[0] != len(lost)-1 {
		t.Errorf("lost were %v, which is more than one gap", lost)
	}
	if strings.Contains(log.String(), "secret") || strings.Contains(eu.Status().URL, "secret") {
		t.Errorf("a password is shown: %+v\n%s", eu.Status(), log)
	}
}
