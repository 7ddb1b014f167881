package traffic

import (
	"errors"
	"io"
	"net"
	"syscall"
)

// pending looks whether bytes have come on a connection, without waiting and without
// taking them; io.EOF means that the other side has closed it.
func pending(conn net.Conn) (there bool, err error) {
	raw, ok := conn.(syscall.Conn)
	if !ok {
		return false, errors.New("not a socket")
	}
	socket, err := raw.SyscallConn()
	if err != nil {
		return false, err
	}
	var n int
	var looked error
	err = socket.Control(func(fd uintptr) {
		var one [1]byte
		n, _, looked = syscall.Recvfrom(int(fd), one[:], syscall.MSG_PEEK|syscall.MSG_DONTWAIT)
	})
	switch {
	case err != nil:
		return false, err
	case errors.Is(looked, syscall.EAGAIN):
		return false, nil
	case looked != nil:
		return false, looked
	case n == 0:
		return false, io.EOF
	}
	return true, nil
}
