package netns

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Namespace is a network namespace, and a thread that lives in it. All methods may be
// called from any goroutine.
type Namespace struct {
	label string
	calls chan func()
	done  chan struct{} // closed when the thread has ended
	file  *os.File      // refers to the namespace
}

// New makes a namespace with only a loopback interface, up. What is
// mounted by Do is seen there alone and goes with it.
func New(label string) (*Namespace, error) {
	n := &Namespace{label: label, calls: make(chan func()), done: make(chan struct{})}
	made := make(chan error)
	go n.live(made)
	if err := <-made; err != nil {
		return nil, fmt.Errorf("network namespace %s: %w", label, err)
	}
	return n, nil
}

// live is the thread. It is never unlocked: it ends with the goroutine and takes its
// namespaces with it, and with them the processes that were started from it.
func (n *Namespace) live(made chan<- error) {
	runtime.LockOSThread()
	if unix.Gettid() == os.Getpid() {
		// The process's first thread does not end with its goroutine. While this one
		// holds it, another goroutine runs elsewhere.
		defer runtime.UnlockOSThread()
		go n.live(made)
		<-n.done
		return
	}
	defer close(n.done)
	err := n.enter()
	made <- err
	if err != nil {
		return
	}
	for call := range n.calls {
		call()
	}
}

func (n *Namespace) enter() error {
	if err := unix.Unshare(unix.CLONE_NEWNET | unix.CLONE_NEWNS); err != nil {
		return fmt.Errorf("unshare (root is needed): %w", err)
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("make mounts private: %w", err)
	}
	file, err := os.Open("/proc/thread-self/ns/net")
	if err != nil {
		return err
	}
	n.file = file
	return up("lo")
}

// Close ends the namespace and kills what was started in it. Closing twice is an error
// of the caller.
func (n *Namespace) Close() {
	close(n.calls)
	<-n.done
	_ = n.file.Close()
}

// Label is what New was given.
func (n *Namespace) Label() string { return n.label }

// Do runs f on the thread of the namespace and returns its error. Sockets that f
// itself opens belong to the namespace; those of goroutines that it starts do not.
func (n *Namespace) Do(f func() error) error {
	result := make(chan error, 1)
	n.calls <- func() { result <- f() }
	return <-result
}

// Start starts a program there. It is killed when the namespace or this process ends.
func (n *Namespace) Start(cmd *exec.Cmd) error {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Pdeathsig = syscall.SIGKILL
	return n.Do(cmd.Start)
}

// Dial connects from there to a literal address; names are not resolved, since that
// would happen on another thread. It gives up after two seconds.
func (n *Namespace) Dial(ctx context.Context, network, addr string) (conn net.Conn, err error) {
	if _, err := netip.ParseAddrPort(addr); err != nil {
		return nil, fmt.Errorf("dial in %s: %w", n.label, err)
	}
	dialer := net.Dialer{Timeout: 2 * time.Second}
	err = n.visit(func() error {
		conn, err = dialer.DialContext(ctx, network, addr)
		return err
	})
	return conn, err
}

// Listen listens there, on TCP.
func (n *Namespace) Listen(addr string) (*net.TCPListener, error) {
	resolved, err := net.ResolveTCPAddr("tcp", addr)
	if err != nil {
		return nil, err
	}
	var l *net.TCPListener
	err = n.visit(func() error {
		l, err = net.ListenTCP("tcp", resolved)
		return err
	})
	return l, err
}

// visit runs f on a thread that is in the namespace meanwhile, several at a time:
// connecting takes long without an answer and must not delay the others.
func (n *Namespace) visit(f func() error) error {
	runtime.LockOSThread()
	home, err := os.Open("/proc/thread-self/ns/net")
	if err != nil {
		runtime.UnlockOSThread()
		return err
	}
	defer home.Close()
	if err := unix.Setns(int(n.file.Fd()), unix.CLONE_NEWNET); err != nil {
		runtime.UnlockOSThread()
		return fmt.Errorf("enter network namespace %s: %w", n.label, err)
	}
	err = f()
	if back := unix.Setns(int(home.Fd()), unix.CLONE_NEWNET); back != nil {
		return errors.Join(err, back) // the thread stays locked, and ends with its goroutine
	}
	runtime.UnlockOSThread()
	return err
}

// Up gives an interface of the namespace an IPv4 address and an MTU and sets it up. A
// name such as wan0:1 is a further address of wan0; its MTU is that of wan0.
func (n *Namespace) Up(device string, addr netip.Prefix, mtu int) error {
	return n.Do(func() error {
		mask := net.CIDRMask(addr.Bits(), 32)
		if err := address(device, unix.SIOCSIFADDR, addr.Addr().AsSlice()); err != nil {
			return err
		}
		if err := address(device, unix.SIOCSIFNETMASK, mask); err != nil {
			return err
		}
		if mtu > 0 {
			if err := control(device, unix.SIOCSIFMTU, func(r *unix.Ifreq) error {
				r.SetUint32(uint32(mtu))
				return nil
			}); err != nil {
				return err
			}
		}
		return up(device)
	})
}

// up sets an interface of this thread's namespace up.
func up(device string) error {
	return control(device, unix.SIOCSIFFLAGS, func(r *unix.Ifreq) error {
		r.SetUint16(unix.IFF_UP | unix.IFF_RUNNING)
		return nil
	})
}

func address(device string, request uint, addr []byte) error {
	return control(device, request, func(r *unix.Ifreq) error { return r.SetInet4Addr(addr) })
}

// control asks the kernel for one change of an interface.
func control(device string, request uint, fill func(*unix.Ifreq) error) error {
	socket, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(socket)
	ask, err := unix.NewIfreq(device)
	if err != nil {
		return err
	}
	if err := fill(ask); err != nil {
		return fmt.Errorf("interface %s: %w", device, err)
	}
	if err := unix.IoctlIfreq(socket, request, ask); err != nil {
		return fmt.Errorf("interface %s: request %#x: %w", device, request, err)
	}
	return nil
}
