//go:build unix

package main

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// testProcsStrangers: a process without the right key or label is nobody, to gossip
// and to the gateways. One with both, that knocks after it, is let in.
func testProcsStrangers(t *testing.T, binary string) {
	g := newGlobe(t, binary, false)
	src := g.topology()
	lone := startNATS(t, freeAddr(t))
	strangers := map[string]string{
		"wrong-key": replace(t, src, g.key, g.newKey(t, "other")),
		// Were its NATS not its own, it would reach the bus by that: whoever has the
		// key may.
		"wrong-label": replace(t, replace(t, src, "cluster: procs", "cluster: other"), "{embedded: true}", fmt.Sprintf("{urls: [%q]}", lone.url())),
	}
	var known []*process
	for name, topology := range strangers {
		file := filepath.Join(g.dir, name+".yaml")
		write(t, file, topology)
		known = append(known, launch(t, binary, "--config", file, "--region", "us-east", "--instance", name, "--gossip", freeAddr(t)))
	}
	p := g.regions[1]
	p.open(g.second(t, p))
	everyone := func(v *regionsView) string { return fmt.Sprintf("%+v %+v %+v", v.Regions, v.Gossip, v.NATS) }
	absent := func(v *regionsView) bool {
		for name := range strangers {
			if said := everyone(v); strings.Contains(said, name) {
				t.Fatalf("%s appears: %s", name, said)
			}
		}
		return true
	}
	g.everywhere(t, "the second is known", func(v *regionsView) bool {
		said := everyone(v)
		return absent(v) && (strings.Contains(said, "Instance:two") && strings.Contains(said, "us-east/two") || v.Instance == "two")
	})
	g.everywhere(t, "the second's NATS is joined", func(v *regionsView) bool {
		return v.Instance == "two" || strings.Contains(everyone(v), "Name:us-east.two Inbound:true Outbound:true")
	})
	// They knock again every five seconds.
	for began := time.Now(); time.Since(began) < fault(6*time.Second); pause(100 * time.Millisecond) {
		g.everywhere(t, "no stranger", absent)
	}
	for _, one := range known {
		v, err := one.regions()
		if err != nil || v.Mode.Mode == "global" || len(v.Gossip) > 1 {
			t.Errorf("the stranger sees others: %+v, %v", v, err)
		}
	}
	g.global(t, "the strangers' visit", time.Now())
}
