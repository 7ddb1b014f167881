package flood_test

import (
	"bufio"
	"bytes"
	"context"
	"crypto/aes"
	"crypto/cipher"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/regiond/regiond/quota"
	"github.com/regiond/regiond/region/gossip"
	"github.com/regiond/regiond/region/members"
	"github.com/regiond/regiond/test/capture"
)

// Messages that announce far more than they have.
const (
	millionNodes   = "\x06\x83\xa5Nodes\xce\x00\x10\x00\x00\xacUserStateLen\x00\xa4Join\xc2"
	largeUserState = "\x06\x83\xa5Nodes\x00\xacUserStateLen\xce\x01\x40\x00\x00\xa4Join\xc2"
	longName       = "\x06\x83\xa5Nodes\x01\xacUserStateLen\x00\xa4Join\xc2\x81\xa4Name\xdb\xff\xff\xff\xff"
)

// processEnv turns the test binary into a process on loopback, so that its memory can be read
// from the kernel: one that gossips, "keyed" or "open", or "serve FILE" of a topology.
const processEnv = "FLOOD_TEST_PROCESS"

func TestMain(m *testing.M) {
	if mode := os.Getenv(processEnv); mode != "" {
		var err error
		if topology, ok := strings.CutPrefix(mode, "serve "); ok {
			err = serveAlone(topology)
		} else {
			err = gossipAlone(mode == "keyed")
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// gossipAlone prints the process's address, and how many members are alive for each line
// that it reads, until its standard input ends.
func gossipAlone(keyed bool) error {
	o := options("r1", "127.0.0.1:0")
	if !keyed {
		o.Keys = nil
	}
	g, err := gossip.New(o)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- g.Run(ctx) }()
	for len(g.Members()) == 0 {
		<-o.Members.Changed()
	}
	fmt.Println(g.Members()[0].Gossip.Addr)
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		alive := 0
		for _, m := range g.Members() {
			if m.Gossip.State == members.Alive {
				alive++
			}
		}
		fmt.Println(alive)
	}
	cancel()
	return <-ended
}

// process is one under attack.
type process struct {
	t     *testing.T
	pid   int
	first string // line that it printed
	in    io.Writer
	out   *bufio.Scanner
}

func startProcess(t *testing.T, mode string) *process {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), processEnv+"="+mode, "GOMEMLIMIT=off", "GOGC=100")
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = in.Close()
		_ = cmd.Wait()
	})
	p := &process{t: t, pid: cmd.Process.Pid, in: in, out: bufio.NewScanner(out)}
	if !p.out.Scan() {
		t.Fatalf("the process did not start: %v", p.out.Err())
	}
	p.first = p.out.Text()
	return p
}

func (p *process) alive() string {
	p.t.Helper()
	fmt.Fprintln(p.in)
	if !p.out.Scan() {
		p.t.Fatalf("the process has ended: %v", p.out.Err())
	}
	return p.out.Text()
}

// memory returns a line of /proc/PID/status, in MiB.
func (p *process) memory(field string) int {
	p.t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.pid))
	if err != nil {
		p.t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(status), field+":")
	kib, err := strconv.Atoi(strings.Fields(rest)[0])
	if err != nil {
		p.t.Fatal(err)
	}
	return kib >> 10
}

// options are those of a process on loopback.
func options(region, bind string, seeds ...string) gossip.Options {
	return gossip.Options{
		Members: members.New(quota.Process{Region: region, Instance: "a", Boot: time.Now().UnixMicro()}),
		Cluster: "prod", Keys: [][]byte{bytes.Repeat([]byte{1}, 32)}, Bind: bind,
		ConfigHash: func() string { return "" }, Seeds: func() []string { return seeds }, Regions: func(string) bool { return true },
	}
}

// run starts a Gossip, which ends with the test.
func run(t *testing.T, o gossip.Options) *gossip.Gossip {
	t.Helper()
	g, err := gossip.New(o)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- g.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("Run ended with %v", err)
		}
	})
	return g
}

// soon polls for something that happens on real sockets.
func soon(t *testing.T, what string, done func() bool) {
	t.Helper()
	capture.Eventually(t, func() error {
		if !done() {
			return errors.New(what)
		}
		return nil
	})
}

// frame is the beginning of a stream: the label, and the length of what is sealed.
func frame(size int) []byte {
	return binary.BigEndian.AppendUint32(append([]byte{244, 4}, "prod\x0a"...), uint32(size))
}

// sealed is a stream that a process with the key of loopback sends.
func sealed(t *testing.T, message string) []byte {
	t.Helper()
	block, err := aes.NewCipher(bytes.Repeat([]byte{1}, 32))
	if err != nil {
		t.Fatal(err)
	}
	gcm, err := cipher.NewGCM(block)
	if err != nil {
		t.Fatal(err)
	}
	head := frame(1 + 12 + len(message) + gcm.Overhead())
	data := append(bytes.Clone(head[6:]), "prod"...)
	return gcm.Seal(append(append(head, 1), make([]byte, 12)...), make([]byte, 12), []byte(message), data)
}

// Nobody who connects to the gossip port takes more than 64 MiB, however many
// connections and addresses they have and whatever they send; those who belong here
// join and see each other meanwhile.
func TestFlood(t *testing.T) {
	const (
		mostMiB     = 64
		connections = 400
	)
	junk := bytes.Repeat([]byte("a"), 64<<10)
	for _, row := range []struct {
		name, mode string
		first      []byte
		send       int // bytes of junk after the first; then the connection stays open
	}{
		{"18 MiB of an encrypted state", "keyed", frame(19 << 20), 18 << 20},
		{"most of what one may send", "keyed", frame(220 << 10), 210 << 10},
		{"all of what one may send", "keyed", frame(220 << 10), 220 << 10},
		{"nothing", "keyed", nil, 0},
		{"18 MiB where no key is used", "open", append(frame(0)[:6], 9), 18 << 20},
		// A push/pull of 2²⁰ nodes, and one of 20 MiB of user state, for which memberlist
		// makes room.
		{"a million nodes where no key is used", "open", append(frame(0)[:6], millionNodes...), 0},
		{"a million nodes with a stolen key", "keyed", sealed(t, millionNodes), 0},
		{"20 MiB with a stolen key", "keyed", sealed(t, largeUserState), 0},
		{"a long name with a stolen key", "keyed", sealed(t, longName), 0},
		{"a long user message with a stolen key", "keyed", sealed(t, "\x08\x81\xaaUserMsgLen\xce\x01\x3f\xff\xff"), 0},
	} {
		t.Run(row.name, func(t *testing.T) {
			p := startProcess(t, row.mode)
			join := func(name string) {
				t.Helper()
				o := options(name, "127.0.0.1:0", p.first)
				if row.mode == "open" {
					o.Keys = nil
				}
				g := run(t, o)
				soon(t, name+" sees the process under attack", func() bool { return len(g.Members()) >= 2 })
			}
			join("r2")
			before := p.memory("VmRSS")

			attack, flooded := make(chan struct{}), sync.WaitGroup{}
			defer flooded.Wait()
			defer close(attack)
			sent := make(chan struct{}, connections)
			for i := range connections {
				from := &net.TCPAddr{IP: net.IPv4(127, 0, byte(i%64), 1)} // 127.0.0.1 among them, where the members are
				flooded.Go(func() {
					for reported := false; ; {
						select {
						case <-attack:
							return
						default:
						}
						c, err := (&net.Dialer{LocalAddr: from, Timeout: time.Second}).Dial("tcp", p.first)
						if err == nil {
							_, err = c.Write(row.first)
							for left := row.send; err == nil && left > 0; left -= len(junk) {
								_ = c.SetWriteDeadline(time.Now().Add(10 * time.Second))
								_, err = c.Write(junk[:min(left, len(junk))])
							}
						}
						if !reported {
							sent <- struct{}{}
							reported = true
						}
						if err == nil { // until it is closed
							_ = c.SetReadDeadline(time.Now().Add(10 * time.Second))
							_, _ = io.Copy(io.Discard, c)
						}
						if c != nil {
							_ = c.Close()
						}
					}
				})
			}
			for range connections {
				<-sent
			}
			join("r3")
			soon(t, "the process sees both who joined", func() bool { return p.alive() == "3" })
			peak := p.memory("VmHWM")
			t.Logf("%d connections: %d MiB before, at most %d MiB", connections, before, peak)
			if peak-before > mostMiB {
				t.Errorf("%d connections took %d MiB (from %d to %d), want at most %d", connections, peak-before, before, peak, mostMiB)
			}
		})
	}
}

// Packets that nobody with the key sent leave nothing behind, however many and large.
func TestFloodOfPackets(t *testing.T) {
	p := startProcess(t, "keyed")
	g := run(t, options("r2", "127.0.0.1:0", p.first))
	soon(t, "two see each other", func() bool { return len(g.Members()) == 2 && p.alive() == "2" })
	before := p.memory("VmRSS")
	c, err := net.Dial("udp", p.first)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for _, size := range []int{1, 6, 1200, 60_000} {
		packet := append(frame(0)[:6], make([]byte, size)...)
		for range 20_000 {
			if _, err := c.Write(packet); err != nil {
				t.Fatal(err)
			}
		}
	}
	g = run(t, options("r3", "127.0.0.1:0", p.first))
	soon(t, "three see each other", func() bool { return len(g.Members()) == 3 && p.alive() == "3" })
	peak := p.memory("VmHWM")
	t.Logf("80,000 packets: %d MiB before, at most %d MiB", before, peak)
	if peak-before > 16 {
		t.Errorf("80,000 packets took %d MiB (from %d to %d), want at most 16", peak-before, before, peak)
	}
}
