//go:build linux

package chaos

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// collectorAddr is in each region's namespace.
const collectorAddr = "127.0.0.1:4318"

// FreezeCollector has the collectors of all regions take connections and bytes, and
// answer nothing. It needs Options.Collector, which alone is a collector that is away.
func (w *World) FreezeCollector() Fault {
	var (
		wg        sync.WaitGroup
		listeners []net.Listener
		heard     = make(chan net.Conn, 1024)
	)
	return Fault{
		Name: "collectors frozen",
		Inject: func() error {
			for _, r := range w.Regions {
				l, err := r.ns.Listen(collectorAddr)
				if err != nil {
					return err
				}
				listeners = append(listeners, l)
				wg.Go(func() {
					for {
						conn, err := l.Accept()
						if err != nil {
							return
						}
						select {
						case heard <- conn: // and never read from
						default:
							_ = conn.Close()
						}
					}
				})
			}
			return nil
		},
		Heal: func() error {
			for _, l := range listeners {
				_ = l.Close()
			}
			wg.Wait()
			close(heard)
			if len(heard) == 0 {
				return errors.New("the collectors were not called")
			}
			for conn := range heard {
				_ = conn.Close()
			}
			return nil
		},
	}
}

// StopReading leaves the log of a region's regiond where it is: the pipe is full, and
// writers block. It needs Options.Pipe.
func (w *World) StopReading(name string) Fault {
	r := w.region(name)
	return Fault{
		Name:   "log of regiond not read in " + name,
		Inject: func() error { return r.regiond.pipe.block() },
		Heal:   func() error { r.regiond.pipe.goOn(); return nil },
	}
}

// logPipe carries what a process logs to a file, through a pipe that can be left unread.
type logPipe struct {
	r, w *os.File
	gate sync.Mutex // held while nobody reads
}

// newLogPipe has it all copied to a file, until the process's side and ours are closed.
func newLogPipe(to io.Writer) (*logPipe, error) {
	p := &logPipe{}
	var err error
	if p.r, p.w, err = os.Pipe(); err != nil {
		return nil, err
	}
	go func() {
		buffer := make([]byte, 4096)
		for {
			n, err := p.r.Read(buffer)
			if err != nil {
				return
			}
			p.gate.Lock()
			_, _ = to.Write(buffer[:n]) // a log that is lost is missed where it is looked for
			p.gate.Unlock()
		}
	}()
	return p, nil
}

// block returns once there is no reader and the pipe is full. It fills it through a
// description of its own: the process's must go on to block.
func (p *logPipe) block() error {
	p.gate.Lock()
	fd, err := unix.Open(fmt.Sprintf("/proc/self/fd/%d", p.w.Fd()), unix.O_WRONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("fill the pipe of a log: %w", err)
	}
	defer unix.Close(fd)
	line := []byte("filler\n")
	for full := 0; full < 5; { // the reader may still take what it was about to
		if _, err := unix.Write(fd, line); errors.Is(err, unix.EAGAIN) {
			full++
			time.Sleep(2 * time.Millisecond)
		} else if err != nil {
			return fmt.Errorf("fill the pipe of a log: %w", err)
		}
	}
	return nil
}

func (p *logPipe) goOn() { p.gate.Unlock() }
