// Package load is `regiond bench` without its flags: it has vegeta send checks at a fixed rate, and counts what came back.
// vegeta keeps the pace, the workers, the connections and the quantiles. What is here is what it cannot know: which tenant
// asks for how much, what counts as decided, and how long an answer took from when its check was due.
//
//	Pace: when is check n due ──► Targeter: whose, how much ──► vegeta's worker ──► RoundTrip: POST, read, count
//
// The loop is open: a check is sent when it is due, whatever became of those before it, and its latency counts from then. A server
// that stalls for a second shows it in all checks that were due in that second. Nothing is sent beyond that: no
// retry, no redirect, no proxy, never more at once than the cap.
package load

import (
	"crypto/tls"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"net/url"
	"sort"
	"strconv"
	"strings"
	"time"

	"github.com/regiond/regiond/quota"
)

// The bounds of options. A run ends by itself, and soon enough that nobody
// forgets it.
const (
	MaxRate     = 100_000 // per second; one process sends less than that, and the result shows it
	MaxFor      = time.Hour
	MaxWarmup   = 10 * time.Minute
	MaxTenants  = 1_000_000 // their weights take eight bytes each
	MaxZipf     = 10
	MaxInFlight = 65_000 // each holds a connection, and an address has so many ports
	MaxTimeout  = time.Minute
	MaxTargets  = 32 // each has quantiles of its own
)

// Options are what Run sends, to whom, and for how long.
type Options struct {
	Targets     []string // base URLs, as ParseTarget returns them, asked in turn
	Rate        float64  // checks per second, of all targets together
	For         time.Duration
	Warmup      time.Duration // before it, at the same rate; not counted
	Tenants     int
	Zipf        float64 // exponent: tenant k is asked for as 1/k^Zipf; 0 is all alike
	Prefix      string  // of the tenants' ids; a number follows, from 1 on
	Policy      string  // "" for each tenant's own
	Costs       Costs
	MaxInFlight int           // checks without an answer, of all targets together
	Timeout     time.Duration // of a check, from when it was sent
	Token       string        // bearer token; "" for none
	TLS         *tls.Config   // nil for the system's authorities
}

// Validate returns what is wrong with the first option that is out of bounds. The
// error begins with the option's name as a flag has it, without dashes.
func (o *Options) Validate() error {
	switch {
	case len(o.Targets) == 0:
		return errors.New("target is needed, such as http://127.0.0.1:8080")
	case len(o.Targets) > MaxTargets:
		return fmt.Errorf("target may be given %d times, not %d", MaxTargets, len(o.Targets))
	case !(o.Rate > 0) || o.Rate > MaxRate: // not a number is neither
		return fmt.Errorf("rate is above 0 and at most %d requests per second, not %v", MaxRate, o.Rate)
	case o.For <= 0 || o.For > MaxFor:
		return fmt.Errorf("for is above 0s and at most %v, not %v", MaxFor, o.For)
	case o.Warmup < 0 || o.Warmup > MaxWarmup:
		return fmt.Errorf("warmup is between 0s and %v, not %v", MaxWarmup, o.Warmup)
	case o.checks(o.For) == 0:
		return fmt.Errorf("for is %v, in which not one request is due at a rate of %v per second", o.For, o.Rate)
	case o.Tenants < 1 || o.Tenants > MaxTenants:
		return fmt.Errorf("tenants is between 1 and %d, not %d", MaxTenants, o.Tenants)
	case !(o.Zipf >= 0) || o.Zipf > MaxZipf:
		return fmt.Errorf("zipf is between 0 (all tenants alike) and %d, not %v", MaxZipf, o.Zipf)
	case o.Costs.Min < 1 || o.Costs.Max < o.Costs.Min || o.Costs.Max > quota.MaxUnits:
		return fmt.Errorf("cost is between 1 and %d units, the smaller end of a range first, not %v", quota.MaxUnits, o.Costs)
	case o.MaxInFlight < 1 || o.MaxInFlight > MaxInFlight:
		return fmt.Errorf("max-in-flight is between 1 and %d, not %d", MaxInFlight, o.MaxInFlight)
	case o.Timeout <= 0 || o.Timeout > MaxTimeout:
		return fmt.Errorf("timeout is above 0s and at most %v, not %v", MaxTimeout, o.Timeout)
	}
	if err := quota.ValidID(o.Prefix + strconv.Itoa(o.Tenants)); err != nil {
		return fmt.Errorf("tenant-prefix makes a bad id: %w", err)
	}
	return nil
}

// checks is how many are due in that time. A product that lacks a hair to a whole
// number is one.
func (o *Options) checks(long time.Duration) int64 { return int64(o.Rate*long.Seconds() + 1e-6) }

// due is when check n is, counted from the first one. It is computed from n and not
// from the one before, so that rounding does not add up.
func (o *Options) due(n int64) time.Duration {
	return time.Duration(float64(n) * float64(time.Second) / o.Rate)
}

// ParseTarget returns the base URL of a target. It accepts an address without a
// scheme, as curl does, and refuses what a base URL has no use for.
func ParseTarget(text string) (string, error) {
	if !strings.Contains(text, "://") {
		text = "http://" + text
	}
	u, err := url.Parse(text)
	switch {
	case err != nil:
		return "", errors.Unwrap(err) // without "parse" and the text, which the caller has
	case u.Scheme != "http" && u.Scheme != "https":
		return "", fmt.Errorf("has the scheme %q; http and https are known", u.Scheme)
	case u.Hostname() == "":
		return "", errors.New("names no host")
	case u.User != nil:
		return "", errors.New("has a user in it; a bearer token is read from a file")
	case u.RawQuery != "" || u.Fragment != "":
		return "", errors.New("has a query or a fragment; it is the address of a data listener")
	}
	return strings.TrimSuffix(u.String(), "/"), nil
}

// Costs are what checks ask for: units between Min and Max, all equally likely.
type Costs struct{ Min, Max int64 }

// ParseCosts reads "3", or a range such as "1-5", ends included. Validate has its bounds.
func ParseCosts(text string) (Costs, error) {
	first, last, isRange := strings.Cut(text, "-")
	if !isRange {
		last = first
	}
	least, err1 := strconv.ParseInt(first, 10, 64)
	most, err2 := strconv.ParseInt(last, 10, 64)
	if err1 != nil || err2 != nil {
		return Costs{}, errors.New("is a number of units, or a range such as 1-5")
	}
	return Costs{least, most}, nil
}

// String is what ParseCosts reads.
func (c Costs) String() string {
	if c.Min == c.Max {
		return strconv.FormatInt(c.Min, 10)
	}
	return fmt.Sprintf("%d-%d", c.Min, c.Max)
}

func (c Costs) draw(r *rand.Rand) int64 { return c.Min + r.Int64N(c.Max-c.Min+1) }

// zipf draws numbers from 0 on, of which k comes as often as 1/(k+1)^s: element k is the sum
// of the weights up to k. The standard library's wants s above 1, and the traffic of many
// tenants is near 1, or below.
type zipf []float64

func newZipf(count int, s float64) zipf {
	z, sum := make(zipf, count), 0.0
	for k := range z {
		sum += math.Pow(float64(k+1), -s)
		z[k] = sum
	}
	return z
}

func (z zipf) draw(r *rand.Rand) int {
	u := r.Float64() * z[len(z)-1]
	return min(sort.Search(len(z), func(k int) bool { return z[k] > u }), len(z)-1)
}
