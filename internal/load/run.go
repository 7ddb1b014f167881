package load

import (
	"context"
	"encoding/json"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"sync"
	"time"

	vegeta "github.com/tsenart/vegeta/v12/lib"
	"golang.org/x/sys/unix"
)

// overrun is how late the end of a run may be sent, so that a pause of the machine at
// the very end loses nothing, and a machine that is too slow ends all the same.
const overrun = time.Second

// Run sends what o describes and returns what came back, once every check has its
// answer or its time is up. When ctx ends before, it sends nothing more, waits for
// what is under way and returns what there is. An error means that o is not valid.
func Run(ctx context.Context, o Options) (*Result, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	t := &http.Transport{
		MaxIdleConnsPerHost: o.MaxInFlight, DisableCompression: true, TLSClientConfig: o.TLS,
		// A connection that is being made outlives the check it was for.
		DialContext: (&net.Dialer{Timeout: o.Timeout}).DialContext, TLSHandshakeTimeout: o.Timeout,
	}
	defer t.CloseIdleConnections()
	return run(ctx, o, t, wait), nil
}

// run is Run on other connections, in the time of wait.
func run(ctx context.Context, o Options, next http.RoundTripper, wait func(context.Context, time.Time)) *Result {
	a := &attack{
		Options: o, next: next, began: time.Now(), warm: o.checks(o.Warmup), slots: make(chan struct{}, o.MaxInFlight), all: newTally(),
		tenants: newZipf(o.Tenants, o.Zipf), random: rand.New(rand.NewPCG(1, 0)), // always the same tenants and costs
		wait: func(at time.Time) bool {
			wait(ctx, at)
			return ctx.Err() == nil
		},
	}
	for _, target := range o.Targets {
		u, _ := url.Parse(target + "/v1/check") // ParseTarget has
		a.urls, a.tallies = append(a.urls, u), append(a.tallies, newTally())
	}
	v := vegeta.NewAttacker(vegeta.Client(&http.Client{Transport: a}), vegeta.Timeout(o.Timeout), vegeta.Redirects(vegeta.NoFollow))
	results := v.Attack(a.target, a, 0, "")
	for range results { // RoundTrip has counted it
	}
	return a.result()
}

// attack is one run.
type attack struct {
	Options
	next  http.RoundTripper
	wait  func(time.Time) bool // false when the run is to end
	began time.Time
	warm  int64 // checks of the warm-up
	urls  []*url.URL
	slots chan struct{} // one taken for each check without an answer

	// Of the goroutine that paces.
	came    int64         // checks whose time came, the warm-up left out
	sending time.Duration // how long it sent them

	mu      sync.Mutex // guards all below
	tenants zipf
	random  *rand.Rand
	all     *tally
	tallies []*tally // by target
}

// Pace implements vegeta.Pacer: it returns when check n is due, or ends the run.
func (a *attack) Pace(_ time.Duration, hits uint64) (time.Duration, bool) {
	n, last := int64(hits), a.warm+a.checks(a.For)
	if n == last || !a.wait(a.began.Add(a.due(n))) {
		return 0, true
	}
	late := time.Now().After(a.began.Add(a.due(last) + overrun))
	for ; n < last; n++ {
		if n >= a.warm {
			a.came++
			a.sending = max(time.Since(a.began.Add(a.due(a.warm))), a.due(n+1)-a.due(a.warm))
		}
		if !late {
			return 0, false
		}
		a.count(n, func(t *tally) { t.unsent.Late++ })
	}
	return 0, true
}

// Rate implements vegeta.Pacer.
func (a *attack) Rate(time.Duration) float64 { return a.Options.Rate }

// target is a vegeta.Targeter: it draws a tenant and a cost.
func (a *attack) target(t *vegeta.Target) (err error) {
	a.mu.Lock()
	tenant, cost := a.Prefix+strconv.Itoa(a.tenants.draw(a.random)+1), a.Costs.draw(a.random)
	a.mu.Unlock()
	t.Method, t.URL, t.Header = http.MethodPost, a.urls[0].String(), http.Header{"Content-Type": {"application/json"}}
	if a.Token != "" {
		t.Header.Set("Authorization", "Bearer "+a.Token)
	}
	t.Body, err = json.Marshal(struct {
		Tenant string `json:"tenant"`
		Policy string `json:"policy,omitempty"`
		Cost   int64  `json:"cost"`
	}{tenant, a.Policy, cost})
	return err
}

// RoundTrip implements http.RoundTripper below vegeta's client. It sends a check to the target whose turn it is, by
// vegeta's number of it, and counts what became of it. One that finds all slots taken is counted, and not sent.
func (a *attack) RoundTrip(r *http.Request) (*http.Response, error) {
	n, err := strconv.ParseInt(r.Header.Get("X-Vegeta-Seq"), 10, 64)
	if err != nil {
		return nil, err
	}
	counted := &http.Response{StatusCode: http.StatusOK, Body: http.NoBody, Request: r}
	select {
	case a.slots <- struct{}{}:
		defer func() { <-a.slots }()
	default:
		a.count(n, func(t *tally) { t.unsent.InFlight++ })
		return counted, r.Body.Close()
	}
	to := *r
	to.URL = a.urls[n%int64(len(a.urls))]
	to.Host = to.URL.Host
	sent := time.Now()
	got := ask(a.next, &to)
	took := time.Since(sent)
	a.count(n, func(t *tally) { t.add(&got, sent.Sub(a.began.Add(a.due(n))), took) })
	return counted, nil
}

// count counts check n for its target and for all, unless it is one of the warm-up.
func (a *attack) count(n int64, count func(*tally)) {
	if n < a.warm {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	count(a.all)
	count(a.tallies[n%int64(len(a.tallies))])
}

// blocked is the part of a wait that blocks a thread.
const blocked = 2 * time.Millisecond

// wait returns at a moment, or before when ctx ends. Go's own timers wake up in whole
// milliseconds when nothing else happens; of requests that are due every millisecond, half
// left 0.77 ms late with them, and 0.10 ms with a system call for the last two milliseconds.
func wait(ctx context.Context, at time.Time) {
	if left := time.Until(at) - blocked; left > 0 {
		select {
		case <-time.After(left):
		case <-ctx.Done():
		}
	}
	for left := time.Until(at); left > 0 && ctx.Err() == nil; left = time.Until(at) {
		tv := unix.NsecToTimeval(left.Nanoseconds() + 999) // rounded up to µs
		_, _ = unix.Select(0, nil, nil, nil, &tv)          // fails with EINTR only
	}
}
