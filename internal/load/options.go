// Package load sends checks to running regionds at a fixed rate and measures what came
// back and how long it took. `regiond bench` is its flags and its exit code.
//
//	      due times          slots           targets, in turn
//	pacer ─────────► draw ─────────► goroutine ─────────► POST /v1/check
//	                           └ none free: counted, not sent
//
// The loop is open. Requests are due at times that are fixed beforehand, and each is
// sent when it is due, whatever became of those before it. Its latency counts from
// when it was due: a server that stalls for a second delays all that were due in that
// second, and all of them show it. A closed loop would have sent one, and waited. The
// time from sending to the answer is kept beside it (service), and so is how late the
// requests were sent (late): the result shows whether the tool kept up.
//
// It sends nothing beyond what was asked: no retry, no redirect, no proxy, never more
// requests than rate times duration, never more at once than the cap. It does not
// judge; who wants a pass or a fail reads the result.
package load

import (
	"errors"
	"fmt"
	"net/url"
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
	MaxTargets  = 32 // each has histograms of its own
)

// Options are what Run sends, to whom, and for how long.
type Options struct {
	Targets     []string // base URLs, as ParseTarget returns them, asked in turn
	Rate        float64  // requests per second, of all targets together
	For         time.Duration
	Warmup      time.Duration // before it, at the same rate; not counted
	Tenants     int
	Zipf        float64 // exponent: tenant k is asked for as 1/k^Zipf; 0 is all alike
	Prefix      string  // of the tenants' ids; a number follows, from 1 on
	Policy      string  // "" for each tenant's own
	Costs       Costs
	MaxInFlight int           // requests without an answer, of all targets together
	Timeout     time.Duration // of a request, from when it was sent
	Seed        uint64        // of tenants and costs: the same seed draws the same
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
	case o.requests(o.For) == 0:
		return fmt.Errorf("for is %v, in which not one request is due at a rate of %v per second", o.For, o.Rate)
	case o.Tenants < 1 || o.Tenants > MaxTenants:
		return fmt.Errorf("tenants is between 1 and %d, not %d", MaxTenants, o.Tenants)
	case !(o.Zipf >= 0) || o.Zipf > MaxZipf:
		return fmt.Errorf("zipf is between 0 (all tenants alike) and %d, not %v", MaxZipf, o.Zipf)
	case o.MaxInFlight < 1 || o.MaxInFlight > MaxInFlight:
		return fmt.Errorf("max-in-flight is between 1 and %d, not %d", MaxInFlight, o.MaxInFlight)
	case o.Timeout <= 0 || o.Timeout > MaxTimeout:
		return fmt.Errorf("timeout is above 0s and at most %v, not %v", MaxTimeout, o.Timeout)
	}
	if err := quota.ValidID(o.Prefix + strconv.Itoa(o.Tenants)); err != nil {
		return fmt.Errorf("tenant-prefix makes a bad id: %w", err)
	}
	return o.Costs.validate()
}

// requests is how many are due in that time. A product that lacks a hair to a whole
// number is one.
func (o *Options) requests(long time.Duration) int64 { return int64(o.Rate*long.Seconds() + 1e-6) }

// due is when request n is, counted from the first one. It is computed from n and not
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
