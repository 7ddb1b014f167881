// Package httpapi is the door: it turns HTTP requests into questions for a
// Limiter and decisions into answers that clients and gateways understand.
//
//	NewData    POST /v1/check, /v1/check:batch, /v1/report, GET /v1/usage/{tenant},
//	           ANY /v1/authz, /v1/authz/{path...}, /v1/authz-nginx, GET /v1/openapi.yaml
//	NewAdmin   /healthz, /readyz, /metrics, /v1/regions, DELETE /v1/usage/{tenant}, /debug/pprof/
//	NewServer  an http.Server with every timeout and size limit set
//
// What it promises:
//
//   - Whatever a caller sends, the answer is one of the table in openapi.yaml. A
//     request that breaks a rule is answered with a problem document that lists
//     all its mistakes, and is never charged.
//   - Forward-auth calls are answered with 200, 429 or 403 only, because
//     gateways read a 5xx as an outage of the limiter. (net/http itself answers
//     400 or 431 to what is not HTTP at all, before this package sees it.)
//   - An answer says what the Decision says: the body exactly, header fields in
//     whole seconds, rounded up and jittered upward by at most a tenth.
//
// What it does not: it decides nothing, remembers no usage, opens no listener
// and starts no goroutine. Settings are read once per request through a func,
// so that a reload takes effect with the next request and never within one.
//
// Everything here is safe for concurrent use.
package httpapi
