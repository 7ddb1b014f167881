package daemon

import (
	"fmt"
	"io"
	"net"
)

// Banner says what runs where and how to try it: in plain words to a person, as
// one line of the log otherwise.
func (d *Daemon) Banner(w io.Writer) {
	scheme := "http"
	if d.tls != nil {
		scheme = "https"
	}
	data, admin := scheme+"://"+reachable(d.dataAt.Addr()), "http://"+reachable(d.adminAt.Addr())
	store := "in memory: usage is gone when this process ends"
	if r := d.self().Redis; !r.Embedded {
		store = "redis " + r.Addrs[0]
	}
	try := fmt.Sprintf(`curl -s -d '{"tenant":"acme"}' %s/v1/check`, data)
	if d.options.TextLog {
		fmt.Fprintf(w, "regiond %s serves region %s, %s\n  decisions  %s\n  admin      %s\n  try        %s\n",
			d.options.Version, d.options.Region, store, data, admin, try)
	} else {
		d.log.Info("regiond is serving", "version", d.options.Version, "region", d.options.Region, "instance", d.options.Instance,
			"http", data, "admin", admin, "store", store, "config_hash", d.hash(), "try", try)
	}
}

// reachable is an address that a person on this machine can use for a listener
// on all interfaces.
func reachable(a net.Addr) string {
	host, port, err := net.SplitHostPort(a.String())
	if err == nil {
		if ip := net.ParseIP(host); ip != nil && ip.IsUnspecified() {
			return net.JoinHostPort("127.0.0.1", port)
		}
	}
	return a.String()
}

// ready is true while traffic should come here. Redis being away does not make
// it false: fail modes answer, and taking the region out would help nobody.
func (d *Daemon) ready() (ok bool, reasons []string) {
	if d.draining.Load() {
		return false, []string{"draining: this process is about to stop"}
	}
	if !d.serving.Load() || d.redis != nil && !d.redis.Probed() {
		return false, []string{"starting"}
	}
	if d.neighbours != nil {
		if why := d.neighbours.ready(); why != "" {
			return false, []string{why}
		}
	}
	if d.redis != nil && !d.redis.Available() {
		return true, []string{"redis is away: fail modes answer"}
	}
	return true, nil
}
