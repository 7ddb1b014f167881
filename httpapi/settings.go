package httpapi

import "github.com/regiond/regiond/quota"

// Settings are what may change between requests. A value is immutable once it
// has been returned by Options.Settings; a reload returns another one.
type Settings struct {
	// ForwardAuth is how to read a gateway's request; nil refuses all of them.
	ForwardAuth *quota.ForwardAuth
	Headers     Headers
	Access      Access
}

// Headers choose the header fields of answers.
type Headers struct {
	Format Format
	XReset XReset
}

// Format is a generation of rate limit header fields, as named in topology.yaml.
// Any other value, "" too, means Draft11.
type Format string

const (
	// Draft11 emits RateLimit-Policy and RateLimit as lists of all limits, in
	// the syntax of revision 11 of the IETF draft.
	Draft11 Format = "draft-11"
	// Triplet emits RateLimit-Limit, -Remaining and -Reset of the headline, as
	// revisions 00–06 had them.
	Triplet Format = "triplet"
	// XRateLimit emits X-RateLimit-Limit, -Remaining and -Reset of the headline.
	XRateLimit Format = "x-ratelimit"
	// Off emits none of them; Retry-After stays.
	Off Format = "off"
)

// XReset is what X-RateLimit-Reset counts. Any other value, "" too, means ResetDelta.
type XReset string

const (
	// ResetDelta: seconds from now.
	ResetDelta XReset = "delta"
	// ResetEpoch: seconds since 1970, by the clock of the region's store.
	ResetEpoch XReset = "epoch"
)

// Access is who may call. The zero value admits everyone: bind to loopback or
// keep the network closed.
type Access struct {
	Tokens      []Token // of the data listener
	AdminTokens []Token // of the admin listener
	// ClientCA accepts a verified client certificate on the data listener in
	// place of a token. The listener's tls.Config verifies it.
	ClientCA bool
}
