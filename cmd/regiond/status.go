package main

import (
	"fmt"
	"io"
	"net"
	"time"

	"github.com/regiond/regiond/region"
)

// greet says what runs where and how to try it: in plain words to a person, as
// one line of the log otherwise.
func (d *daemon) greet(w io.Writer) {
	release, _ := buildVersion()
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
	if d.options.logFormat == "text" {
		fmt.Fprintf(w, "regiond %s serves region %s, %s\n  decisions  %s\n  admin      %s\n  try        %s\n",
			release, d.options.region, store, data, admin, try)
	} else {
		d.log.Info("regiond is serving", "version", release, "region", d.options.region, "instance", d.options.instance,
			"http", data, "admin", admin, "store", store, "config_hash", d.hash(), "try", try)
	}
	if n := len(d.topology.Load().Regions); n > 1 {
		d.log.Warn("regions do not hear each other in this version: each holds global limits to its own part", "regions", n)
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
func (d *daemon) ready() (ok bool, reasons []string) {
	if d.draining.Load() {
		return false, []string{"draining: this process is about to stop"}
	}
	if !d.serving.Load() || d.redis != nil && !d.redis.Probed() {
		return false, []string{"starting"}
	}
	if d.redis != nil && !d.redis.Available() {
		return true, []string{"redis is away: fail modes answer"}
	}
	return true, nil
}

// regionsView is GET /v1/regions.
type regionsView struct {
	Region     string       `json:"region"`
	Instance   string       `json:"instance"`
	ConfigHash string       `json:"config_hash"`
	Store      storeView    `json:"store"`
	Clock      clockView    `json:"clock"`
	Regions    []regionView `json:"regions"`
}

type storeView struct {
	Kind      string `json:"kind"` // redis or memory
	Available bool   `json:"available"`
}

type clockView struct {
	Valid         bool    `json:"valid"`
	OffsetMS      float64 `json:"offset_ms"` // of the store's clock against this host's, for display only
	UncertaintyMS float64 `json:"uncertainty_ms"`
	DriftPPM      float64 `json:"drift_ppm"`
}

type regionView struct {
	Name   string `json:"name"`
	Weight int64  `json:"weight"`
	Self   bool   `json:"self"`
}

func (d *daemon) regions() any {
	top := d.topology.Load()
	v := regionsView{
		Region: d.options.region, Instance: d.options.instance, ConfigHash: top.Hash(),
		Store: storeView{Kind: "memory", Available: true}, Clock: d.clockView(),
	}
	if d.redis != nil {
		v.Store = storeView{Kind: "redis", Available: d.redis.Available()}
	}
	for i := range top.Regions {
		v.Regions = append(v.Regions, view(&top.Regions[i], d.options.region))
	}
	return v
}

func (d *daemon) clockView() clockView {
	r := d.clock.Reading()
	v := clockView{Valid: r.Valid, UncertaintyMS: ms(r.Uncertainty), DriftPPM: r.Drift}
	if r.Valid {
		v.OffsetMS = ms(time.Duration(r.NowUS-time.Now().UnixMicro()) * time.Microsecond)
	}
	return v
}

func ms(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

func view(r *region.Region, self string) regionView {
	return regionView{Name: r.Name, Weight: r.Weight, Self: r.Name == self}
}
