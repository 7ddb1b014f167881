package status_test

import (
	"strings"
	"testing"
	"time"

	"github.com/regiond/regiond/internal/status"
	"github.com/regiond/regiond/quota"
	"github.com/regiond/regiond/region/members"
	"github.com/regiond/regiond/test/golden"
)

// reportTime is the time at which the views of these tests are looked at.
func reportTime() time.Time { return time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC) }

// healthy is a report of eu-west in which all is well.
func healthy() *status.Report {
	at := reportTime()
	process := func(instance string) members.ProcessRow {
		return members.ProcessRow{
			Instance: instance, State: members.StateFresh, HeardMS: 120, AckedMS: 340, Newest: 712, Complete: 712, RTTMS: 81.26, Gossip: "alive",
		}
	}
	peer := func(name string, processes ...members.ProcessRow) status.Region {
		return status.Region{
			RegionRow: members.RegionRow{
				Region: name, State: members.StateFresh, InUse: true, HeardMS: 120, AckedMS: 340, Processes: processes,
			},
			Offset: &status.Offset{OffsetMS: -2.34, UncertaintyMS: 0.51, AgeMS: 200},
		}
	}
	member := func(name string) status.Member {
		return status.Member{Name: name, Gossip: members.Gossip{
			Addr: "192.0.2.1:7946", State: "alive", Since: at.Add(-time.Hour), ConfigHash: "48997815135dbc5f",
		}}
	}
	self := member("eu-west/one")
	self.Self = true
	return &status.Report{
		Region: "eu-west", Instance: "one", Version: "v0.3.0", ConfigHash: "48997815135dbc5f",
		Mode: status.Mode{Mode: "global"}, Store: status.Store{Kind: "redis", Available: true, Epoch: 2_318_452_207},
		Topology: &status.Topology{Revision: 7, Agreed: true},
		Regions: []status.Region{
			{RegionRow: members.RegionRow{Region: "eu-west", Self: true, State: members.StateSelf, InUse: true, HeardMS: -1, AckedMS: -1}},
			peer("us-east", process("one"), process("two")), peer("ap-south", process("one")),
		},
		NATS:   &status.NATS{Connected: true, URL: "nats://nats-eu:4222", Since: at.Add(-90 * time.Minute)},
		Gossip: []status.Member{self, member("us-east/one"), member("us-east/two"), member("ap-south/one")},
		Totals: &status.Totals{Series: 1200, UnsentMS: 40},
		Worst:  map[string]float64{"standard.sustained": 1.024, "standard.login": 0.5},
	}
}

// broken is the same after much has gone wrong.
func broken() *status.Report {
	v, at := healthy(), reportTime()
	v.Mode = status.Mode{Mode: "partitioned", Reason: "peer_silent", About: []string{"us-east", "ap-south"}}
	v.Store.Available = false
	v.Topology.Agreed, v.Topology.HeldMS, v.Topology.Former = false, 91_000, []string{"sa-east"}
	until := at.Add(90 * time.Second)
	v.Bounds = []status.Bound{{
		Policy: "standard", Name: "login", Reason: quota.ReasonBoundBurnt, Until: &until, LeftMS: 90_000,
		Text: "This region lost its data at 11:58:04 UTC, so what it had admitted before is not known. " +
			"Until 12:01:30 UTC its own share of limit standard.login counts as used, and it admits only what other regions lend it.",
	}}
	lost := at.Add(-time.Minute)
	v.Store.Lost = &lost
	us, ap := &v.Regions[1], &v.Regions[2]
	us.State, us.InUse, us.Reason, us.HeardMS, us.AckedMS = members.StateSilent, false, quota.ReasonPeerSilent, 12_345, -1
	us.Text = "process two has been silent for 12.3s (gossip: dead)"
	us.Processes[1] = members.ProcessRow{
		Instance: "two", State: members.StateSilent, HeardMS: 12_345, AckedMS: -1, UnsentMS: 700,
		MissingMS: 12_900, Newest: 690, Complete: 688, Gossip: "dead", Newcomer: true,
	}
	us.Offset.Alarm = true
	ap.State, ap.InUse, ap.Reason, ap.HeardMS, ap.AckedMS = members.StateNeverSeen, false, quota.ReasonPeerSilent, -1, -1
	ap.Text, ap.Offset, ap.Processes = "no process of it has been seen yet", nil, nil
	v.NATS = &status.NATS{
		Since: at.Add(-time.Minute), LastError: "read tcp: connection reset by peer",
		Gateways: []status.Gateway{{Name: "us-east", Inbound: true}, {Name: "ap-south"}, {Name: "us-east.two", Inbound: true, Outbound: true}},
	}
	v.Gossip[2].State, v.Gossip[2].Since = "dead", at.Add(-9*time.Second)
	v.Drift = &status.Drift{Since: at.Add(-6 * time.Minute), Hashes: map[string][]string{
		"48997815135dbc5f": {"eu-west/one"}, "0123456789abcdef": {"us-east/one", "us-east/two"},
	}}
	return v
}

func TestPrint(t *testing.T) {
	var b strings.Builder
	show := func(title string, r *status.Report) {
		b.WriteString("== " + title + "\n")
		r.Print(&b, reportTime())
		b.WriteString("\n")
	}
	show("all is well", healthy())
	show("much is wrong", broken())
	young := healthy()
	young.NATS, young.Gossip = &status.NATS{LastError: "no servers available"}, nil
	young.Mode, young.Regions = status.Mode{Mode: "joining", Reason: "joining"}, broken().Regions[2:]
	show("not connected yet", young)
	late := healthy()
	late.Topology.HeldMS = 45_000
	late.Bounds = []status.Bound{{Reason: quota.ReasonBoundClosed, Text: "Limit standard.login admits nothing until it is known whether this region's Redis has lost data."}}
	show("shares grow late, and a bound is closed", late)
	alone := healthy()
	alone.Regions = alone.Regions[:1]
	alone.NATS, alone.Gossip, alone.Totals, alone.Worst = nil, nil, nil, nil
	show("one region alone", alone)
	golden.Compare(t, "report.golden", b.String())
}
