package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/regiond/regiond/internal/cli"
	"github.com/regiond/regiond/internal/demo"
	"github.com/regiond/regiond/internal/status"
	"github.com/regiond/regiond/quota"
	"github.com/regiond/regiond/region/view"
)

// regionsAt is the time at which the views of these tests are looked at.
func regionsAt() time.Time { return time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC) }

// whole is a view from eu-west in which all is well.
func whole() *status.Report {
	at := regionsAt()
	process := func(instance string) view.PeerProcess {
		return view.PeerProcess{
			Instance: instance, Boot: at.Add(-time.Hour), State: view.StateFresh, HeardMS: 120, AckedMS: 340, RTTMS: 81.26,
			Synced: true, Gossip: "alive", Members: []string{"ap-south", "eu-west", "us-east"},
		}
	}
	peer := func(name string, processes ...view.PeerProcess) status.Region {
		return status.Region{
			Peer: view.Peer{
				Region: name, Weight: 1, State: view.StateFresh, InUse: true, SinceMS: 3_000_000, HeardMS: 120, AckedMS: 340,
				Processes: processes,
			},
			Offset: &status.Offset{OffsetMS: -2.34, UncertaintyMS: 0.51, AgeMS: 200},
		}
	}
	member := func(name string) status.Member {
		return status.Member{Name: name, Addr: "192.0.2.1:7946", State: "alive", Since: at.Add(-time.Hour), ConfigHash: "48997815135dbc5f"}
	}
	self := member("eu-west/one")
	self.Self = true
	return &status.Report{
		Region: "eu-west", Instance: "one", Version: "v0.3.0", ConfigHash: "48997815135dbc5f",
		Mode: status.Mode{Mode: "global"}, Store: status.Store{Kind: "redis", Available: true},
		Regions: []status.Region{
			{Peer: view.Peer{Region: "eu-west", Weight: 1, Self: true, State: view.StateSelf, InUse: true, HeardMS: -1, AckedMS: -1}},
			peer("us-east", process("one"), process("two")), peer("ap-south", process("one")),
		},
		NATS:   &status.NATS{Connected: true, URL: "nats://nats-eu:4222", Since: at.Add(-90 * time.Minute)},
		Gossip: []status.Member{self, member("us-east/one"), member("us-east/two"), member("ap-south/one")},
		Totals: &status.Totals{Series: 1200, UnsentMS: 40},
		Worst:  map[string]float64{"standard.sustained": 1.024, "standard.login": 0.5},
	}
}

// blind is the same after much has gone wrong.
func blind() *status.Report {
	v, at := whole(), regionsAt()
	v.Mode = status.Mode{Mode: "partitioned", Reason: "peer_silent", About: []string{"us-east", "ap-south"}}
	v.Store.Available = false
	us, ap := &v.Regions[1], &v.Regions[2]
	us.State, us.InUse, us.Reason, us.HeardMS, us.AckedMS = view.StateSilent, false, quota.ReasonPeerSilent, 12_345, -1
	us.Text = "process two has been silent for 12.3s (gossip: dead)"
	us.Processes[1] = view.PeerProcess{Instance: "two", State: view.StateSilent, HeardMS: 12_345, AckedMS: -1, UnsentMS: 700, Gossip: "dead", Newcomer: true}
	us.Offset.Alarm = true
	ap.State, ap.InUse, ap.Reason, ap.HeardMS, ap.AckedMS = view.StateNeverSeen, false, quota.ReasonPeerSilent, -1, -1
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

func TestRegionsCommandText(t *testing.T) {
	var s session
	show := func(title string, v *status.Report) {
		s.text.WriteString("== " + title + "\n")
		v.Print(&s.text, regionsAt())
		s.text.WriteString("\n")
	}
	show("all is well", whole())
	show("much is wrong", blind())
	young := whole()
	young.NATS, young.Gossip = &status.NATS{LastError: "no servers available"}, nil
	young.Mode, young.Regions = status.Mode{Mode: "joining", Reason: "joining"}, blind().Regions[2:]
	show("not connected yet", young)
	alone := whole()
	alone.Regions = alone.Regions[:1]
	alone.NATS, alone.Gossip, alone.Totals, alone.Worst = nil, nil, nil, nil
	show("one region alone", alone)
	s.compare(t, "regions")
}

// adminOf answers GET /v1/regions for those with the token, if there is one.
func adminOf(t *testing.T, token string, code int, body string) string {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet || r.URL.Path != "/v1/regions" {
			t.Errorf("it asks %s %s", r.Method, r.URL)
		}
		if token != "" && r.Header.Get("Authorization") != "Bearer "+token {
			w.WriteHeader(http.StatusUnauthorized)
			w.Write([]byte(`{"title":"Unauthorized","detail":"a bearer token is needed","status":401}`))
			return
		}
		w.WriteHeader(code)
		w.Write([]byte(body))
	}))
	t.Cleanup(s.Close)
	return s.URL
}

func encoded(t *testing.T, v *status.Report) string {
	t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// TestRegionsCommandExits: 0 is global, 1 any other mode, 2 no answer.
func TestRegionsCommandExits(t *testing.T) {
	local := whole()
	local.Mode.Mode = "local"
	gone := adminOf(t, "", http.StatusOK, "")
	server := httptest.NewServer(http.NotFoundHandler())
	server.Close()
	for _, c := range []struct {
		what, addr string
		args       []string
		code       int
		says       string // in stdout, or with code 2 in stderr
	}{
		{"global", adminOf(t, "", http.StatusOK, encoded(t, whole())), nil, 0, "mode global\n"},
		{"partitioned", adminOf(t, "", http.StatusOK, encoded(t, blind())), nil, 1, "mode partitioned: peer_silent (us-east, ap-south)\n"},
		{"local", adminOf(t, "", http.StatusOK, encoded(t, local)), nil, 1, "mode local\n"},
		{"nothing", gone, nil, 2, "is not regiond's admin listener"},
		{"a page", adminOf(t, "", http.StatusOK, "<html>"), nil, 2, "is not regiond's admin listener"},
		{"other JSON", adminOf(t, "", http.StatusOK, `{"ready":true}`), nil, 2, "is not regiond's admin listener"},
		{"another service", adminOf(t, "", http.StatusNotFound, "404 page not found"), nil, 2, "status 404, and what answers at"},
		{"a problem", adminOf(t, "", http.StatusNotFound, `{"title":"Not found","detail":"try another"}`), nil, 2, "Not found: try another"},
		{"nobody", server.URL, nil, 2, "is its admin listener there?"},
		{"no token", adminOf(t, "s3cret", http.StatusOK, encoded(t, whole())), nil, 2, "a bearer token is needed; name a file with an admin token by --token-file"},
		{"words", gone, []string{"now"}, 2, `takes no words, got "now"`},
		{"an absent token", gone, []string{"--token-file", "testdata/absent"}, 2, "testdata/absent"},
		{"no URL", "http://[::1", nil, 2, "--addr: "},
	} {
		got := invoke(t, append([]string{"regions", "--addr", c.addr}, c.args...)...)
		text, other := got.stdout, got.stderr
		if c.code == cli.ExitUsage {
			text, other = other, text
		}
		if got.code != c.code || !strings.Contains(text, c.says) || other != "" {
			t.Errorf("%s: %+v", c.what, got)
		}
	}
}

func TestRegionsCommandToken(t *testing.T) {
	file := filepath.Join(t.TempDir(), "token")
	write(t, file, "s3cret\n")
	addr := adminOf(t, "s3cret", http.StatusOK, encoded(t, whole()))
	if got := invoke(t, "regions", "--token-file", file, "--addr", strings.TrimPrefix(addr, "http://")); got.code != cli.ExitOK {
		t.Errorf("%+v", got)
	}
}

// TestRegionsCommandPrintsJSON: -o json prints what the service said, whatever a
// later version adds to it.
func TestRegionsCommandPrintsJSON(t *testing.T) {
	body := replace(t, encoded(t, blind()), `"region":"eu-west"`, `"region":"eu-west","altitude_m":2400`)
	got := invoke(t, "regions", "-o", "json", "--addr", adminOf(t, "", http.StatusOK, body+"\n"))
	if got.code != cli.ExitFailed || got.stdout != body+"\n" || got.stderr != "" {
		t.Errorf("%+v", got)
	}
}

// TestRegionsCommandAsksRealOnes: of regions that hear each other, and of one that
// hears nobody.
func TestRegionsCommandAsksRealOnes(t *testing.T) {
	d := startDemo(t, "--quiet")
	at := "http://127.0.0.1:" + strconv.Itoa(d.port+demo.AdminOffset)
	got := invoke(t, "regions", "--addr", at)
	for _, want := range []string{"eu-west/demo  regiond ", "mode global\n", "us-east   fresh", "gateway ap-south: both ways", "us-east/demo at 127.0.0.1:"} {
		if got.code != cli.ExitOK || !strings.Contains(got.stdout, want) {
			t.Errorf("without %q: %+v", want, got)
		}
	}
	d.change(t, "cut", "eu-west")
	d.awaitModes(t, "partitioned", "partitioned", "partitioned")
	eventually(t, func() error { // one is noticed before the other
		got = invoke(t, "regions", "--addr", at)
		if got.code != cli.ExitFailed || !strings.Contains(got.stdout, "mode partitioned: peer_silent (us-east, ap-south)\n") ||
			!strings.Contains(got.stdout, "us-east: process demo has been silent for ") {
			return fmt.Errorf("cut off: %+v", got)
		}
		return nil
	})
}

func TestRegionsCommandHelp(t *testing.T) {
	got := invoke(t, "regions", "-h")
	for _, f := range []string{"-addr", "-token-file", "-o"} {
		if got.code != 0 || !strings.Contains(got.stderr, "\n  "+f+" ") {
			t.Errorf("without %s: %+v", f, got)
		}
	}
}
