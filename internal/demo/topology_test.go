package demo_test

import (
	"testing"

	"github.com/regiond/regiond/internal/demo"
	"github.com/regiond/regiond/region/warnings"
)

func TestTopology(t *testing.T) {
	addrs := []string{"127.0.0.1:20001", "127.0.0.1:20002", "127.0.0.1:20003"}
	gateways := []string{"127.0.0.1:20004", "127.0.0.1:20005", "127.0.0.1:20006"}
	top, err := demo.Topology(demo.DefaultPort, addrs, gateways, "key")
	if err != nil {
		t.Fatal(err)
	}
	for _, w := range warnings.Of(top) {
		t.Errorf("an operator would be warned: %s: %s", w.Pointer, w.Detail)
	}
	if r, _ := top.Region("us-east"); r.HTTP != "127.0.0.1:8082" || r.Admin != "127.0.0.1:9082" {
		t.Errorf("us-east is at %s and %s", r.HTTP, r.Admin)
	}
	asked := 0
	for _, rate := range demo.Rates() {
		asked += rate * int(demo.BusyWindow.Seconds())
	}
	if asked <= demo.BusyUnits || len(demo.Rates()) != len(demo.Regions()) {
		t.Errorf("%d requests a minute never meet a limit of %d", asked, demo.BusyUnits)
	}
}
