//go:build unix

package gateway

import (
	"net/http"
	"testing"
	"time"
)

// Example is one folder of examples/, whose tests run in that folder.
type Example struct {
	// Launch starts the gateway on the folder's files, before a regiond and an app
	// that listen at these addresses, with the edits made. It returns where
	// customers come in.
	Launch func(t *testing.T, regiond, app string, edits ...Edit) string
	// Prove is how a customer shows who he is; APIKey when nil.
	Prove func(req *http.Request, tenant string)
	// Patient replaces the example's timeouts by ten seconds. They are for an
	// operator; on a machine that runs other tests, a pause is not an outage.
	Patient []Edit
	// Switch turns what the file does while regiond is away into its opposite:
	// open into closed, closed into open. Empty when the gateway has one way only.
	Switch []Edit
	// Forgetful makes the gateway ask without saying whose request it is.
	Forgetful []Edit
	// Closed says that the file as shipped lets nothing through while regiond is away.
	Closed bool
	// AwayStatus is what customers get then, when the gateway is closed.
	AwayStatus int
	// Wait is how long the gateway waits for a regiond that does not answer; 0 when
	// it cannot be told.
	Wait time.Duration
	// Silent says that the gateway does not pass the RateLimit fields of an
	// admission on to the customer.
	Silent bool
	// Unchallenged says that the gateway's own 401 comes without WWW-Authenticate.
	Unchallenged bool
	// PlainAway says that the refusal while regiond is away is the gateway's own
	// page, not a problem document.
	PlainAway bool
}

// stack is the example as an operator runs it, each part on a free port.
type stack struct {
	Customer
	app     *App
	regiond *Regiond
}

// start runs the whole example with the shipped files but for their addresses,
// and the edits of the gateway's file.
func (e Example) start(t *testing.T, binary string, edits ...Edit) *stack {
	t.Helper()
	s := &stack{app: NewApp(t), regiond: StartRegiond(t, binary, "topology.yaml")}
	s.Customer = e.Before(t, s.regiond.Addr, s.app.Addr, edits...)
	return s
}

// Before starts the gateway before a regiond and an app that are there already.
func (e Example) Before(t *testing.T, regiond, app string, edits ...Edit) Customer {
	t.Helper()
	prove := e.Prove
	if prove == nil {
		prove = APIKey
	}
	return Customer{Addr: e.Launch(t, regiond, app, edits...), Prove: prove}
}

// Run tells the story, each part of it with a stack of its own. It fails when the
// programs are missing, and is left out under -short.
func (e Example) Run(t *testing.T) {
	if testing.Short() {
		t.Skip("starts redis-server, regiond and a gateway")
	}
	binary := Build(t, "../..")
	for _, part := range []struct {
		name string
		test func(t *testing.T, binary string)
	}{
		{"allowed traffic passes and is told what is left", e.allowed},
		{"limited traffic gets 429", e.limited},
		{"logins are held tighter than the rest", e.routes},
		{"forging headers gains nothing", e.forged},
		{"without a proof nothing is answered", e.unidentified},
		{"what regiond cannot attribute is forbidden", e.invalid},
		{"a killed regiond is away and then back", e.killed},
		{"a frozen regiond is away within the wait", e.frozen},
		{"one line changes what away means", e.switched},
	} {
		t.Run(part.name, func(t *testing.T) { part.test(t, binary) })
	}
}

// TestAway checks what the gateway makes of each status that stands in for
// regiond's answer: what the customer gets, and that the app is reached by 200
// alone.
func (e Example) TestAway(t *testing.T, want map[int]int) {
	t.Helper()
	for regiond, customer := range want {
		header := http.Header{"X-Regiond-Decision": {"allow"}}
		if regiond != http.StatusOK {
			header = nil
		}
		app := NewApp(t)
		c := e.Before(t, NewStandIn(t, regiond, header, "").Addr, app.Addr, e.Patient...)
		got := c.Ask(t, Question{As: "acme"})
		if got.Status != customer {
			t.Errorf("regiond answers %d: the customer gets %d, want %d", regiond, got.Status, customer)
		}
		if reached := len(app.Requests()) == 1; reached != (customer == http.StatusOK) {
			t.Errorf("regiond answers %d: the request reached the app: %v", regiond, reached)
		}
	}
}

// TestImpostor checks, of a gateway that reads X-Regiond-Decision, that a 200 of
// somebody else who listens on regiond's port lets nothing through.
func (e Example) TestImpostor(t *testing.T) {
	t.Helper()
	app := NewApp(t)
	c := e.Before(t, NewStandIn(t, http.StatusOK, nil, "welcome").Addr, app.Addr, e.Patient...)
	c.Ask(t, Question{As: "acme"}).Is(t, http.StatusInternalServerError)
	if len(app.Requests()) != 0 {
		t.Error("the request reached the app")
	}
}
