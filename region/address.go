package region

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/regiond/regiond/quota"
)

// SplitAddress splits host:port. The host is an IP address, a host name or
// empty; the port may be 0.
func SplitAddress(addr string) (host string, port int, err error) {
	if strings.Contains(addr, "://") {
		return "", 0, fmt.Errorf("must be host:port without a scheme, is %q", quota.Clip(addr))
	}
	host, digits, err := net.SplitHostPort(addr)
	if err != nil {
		return "", 0, fmt.Errorf("must be host:port, is %q", quota.Clip(addr))
	}
	n, err := strconv.ParseUint(digits, 10, 16)
	if err != nil {
		return "", 0, fmt.Errorf("must be host:port with a port up to 65535, is %q", quota.Clip(addr))
	}
	return host, int(n), checkHost(host, addr)
}

func checkHost(host, addr string) error {
	if _, err := netip.ParseAddr(host); err == nil || host == "" {
		return nil
	}
	badLabel := func(label string) bool {
		return label == "" || len(label) > 63 || strings.Trim(label, letters+"0123456789-_") != ""
	}
	if len(host) > 253 || slices.ContainsFunc(strings.Split(strings.TrimSuffix(host, "."), "."), badLabel) {
		return fmt.Errorf("must begin with an IP address or a host name, is %q", quota.Clip(addr))
	}
	return nil
}

const letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"

// checkListen accepts what a listener binds to: host:port, where no host means
// every interface and port 0 any free port.
func checkListen(addr string) error {
	_, _, err := SplitAddress(addr)
	return err
}

// checkRemote accepts what one connects to: host:port, both given.
func checkRemote(addr string) error {
	host, port, err := SplitAddress(addr)
	if err == nil && (host == "" || port == 0) {
		return fmt.Errorf("must name a host and a port to connect to, is %q", quota.Clip(addr))
	}
	return err
}

// checkAdvertised accepts where others connect to this process: every interface
// is an address to listen on, and none to reach.
func checkAdvertised(addr string) error {
	err := checkRemote(addr)
	if host, _, _ := SplitAddress(addr); err == nil && everyInterface(host) {
		return fmt.Errorf("must name a host that others can reach, is %q", quota.Clip(addr))
	}
	return err
}

// checkNATS accepts one server of a bus. Credentials in it would be a secret in
// a file that is shown to others.
func checkNATS(raw string) error {
	u, err := url.Parse(raw)
	switch {
	case err != nil || u.Scheme != "nats" && u.Scheme != "tls" || u.Hostname() == "":
		return fmt.Errorf("must be like nats://host:4222 or tls://host:4222, is %q", quota.Clip(raw))
	case u.User != nil:
		return errors.New("must not carry credentials; use username and password_file, or creds_file")
	case u.RawQuery != "" || u.Fragment != "" || strings.Trim(u.Path, "/") != "":
		return fmt.Errorf("must end after host and port, is %q", quota.Clip(raw))
	case u.Port() == "":
		return checkHost(u.Hostname(), raw)
	}
	return checkRemote(u.Host)
}

// OnLoopback reports whether an address is for this host alone.
func OnLoopback(addr string) bool {
	host, _, _ := SplitAddress(addr)
	return quota.IsLoopback(host)
}

func everyInterface(host string) bool {
	ip, err := netip.ParseAddr(host)
	return host == "" || err == nil && ip.IsUnspecified()
}

// portAfter is the same host and the next port; "" when there is none, or nobody
// could connect to it.
func portAfter(addr string) string {
	host, port, err := SplitAddress(addr)
	if err != nil || everyInterface(host) || port == 0 || port == 65535 {
		return ""
	}
	return net.JoinHostPort(host, strconv.Itoa(port+1))
}

// sameListener reports whether two listeners of one machine would want the same
// port. Names are not resolved: different names count as different hosts.
func sameListener(a, b string) bool {
	hostA, portA, errA := SplitAddress(a)
	hostB, portB, errB := SplitAddress(b)
	return errA == nil && errB == nil && portA == portB && portA != 0 &&
		(hostA == hostB || everyInterface(hostA) || everyInterface(hostB))
}
