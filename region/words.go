package region

// RedisMode says what stands behind the addresses of a store.
type RedisMode string

// The words of redis.mode.
const (
	// RedisStandalone is one server at one address; the default.
	RedisStandalone RedisMode = "standalone"
	// RedisSentinel asks the sentinels at the addresses for the primary.
	RedisSentinel RedisMode = "sentinel"
	// RedisCluster learns the other nodes from those at the addresses.
	RedisCluster RedisMode = "cluster"
)

// Missing says what becomes of a forwarded request without a value that
// forward_auth asks for.
type Missing string

// The words of forward_auth.missing.
const (
	// MissingDeny refuses it; the default.
	MissingDeny Missing = "deny"
	// MissingAnonymous counts all such requests together, in one partition.
	MissingAnonymous Missing = "anonymous"
)

// HeaderFormat says which header fields tell a client about its limits.
type HeaderFormat string

// The words of headers.format.
const (
	// HeadersDraft11 is RateLimit-Policy and RateLimit as structured fields;
	// the default.
	HeadersDraft11 HeaderFormat = "draft-11"
	// HeadersTriplet is RateLimit-Limit, RateLimit-Remaining and RateLimit-Reset.
	HeadersTriplet HeaderFormat = "triplet"
	// HeadersX is the same three with the prefix X-.
	HeadersX HeaderFormat = "x-ratelimit"
	// HeadersOff sends none of them; Retry-After stays.
	HeadersOff HeaderFormat = "off"
)

// ResetStyle says what X-RateLimit-Reset counts.
type ResetStyle string

// The words of headers.x_reset.
const (
	// ResetDelta is seconds from now; the default.
	ResetDelta ResetStyle = "delta"
	// ResetEpoch is seconds since 1970.
	ResetEpoch ResetStyle = "epoch"
)
