package demo

import (
	"context"
	"math/rand/v2"
	"net"
	"strconv"
)

// loopback is where everything in the demo listens, and nowhere else.
const loopback = "127.0.0.1"

// Free ports are looked for below those that systems give to outgoing
// connections: between the moment when a port is found free and the one when
// NATS binds it, no connection can take it.
const (
	firstFree = 20_000
	lastFree  = 32_000
	portTries = 50
)

// tryPorts calls use with one port after the other until it succeeds, and returns
// its last error.
func tryPorts(use func(port int) error) error {
	var err error
	for range portTries {
		if err = use(firstFree + rand.N(lastFree-firstFree)); err == nil {
			return nil
		}
	}
	return err
}

// FreeAddr finds host:port on loopback where somebody can listen soon.
func FreeAddr(ctx context.Context) (string, error) {
	var addr string
	err := tryPorts(func(port int) error {
		l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address(port))
		if err != nil {
			return err
		}
		addr = address(port)
		return l.Close()
	})
	return addr, err
}

func address(port int) string { return net.JoinHostPort(loopback, strconv.Itoa(port)) }
