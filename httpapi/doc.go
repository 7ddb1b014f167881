// Package httpapi serves regiond's HTTP API: it turns requests into checks for a
// Limiter, and decisions into answers for clients and gateways.
//
//	NewData    POST /v1/check, /v1/reserve, /v1/settle and /v1/extend, each with :batch too, /v1/report,
//	           GET /v1/usage, /v1/usage/{tenant}, /v1/explain/{tenant}, /v1/openapi.yaml,
//	           ANY /v1/authz, /v1/authz/{path...}, /v1/authz-nginx
//	NewAdmin   /healthz, /readyz, /metrics, /v1/regions, /v1/events, /v1/top, /v1/explain/{tenant}, /v1/overrides,
//	           POST /v1/reopen/{region}, DELETE /v1/usage/{tenant}, /session, the page, /debug/pprof/
//	NewServer  an http.Server with every timeout and size limit set; package plain has one on fasthttp
//
// A request passes these files, top to bottom:
//
//	server.go       net/http: a Request from an engine, and its limits
//	handler.go      who may call, what is in flight, panics, refusals, the log
//	endpoints.go    the table of calls
//	check.go        checks, reports, usage and batches, and their answers
//	request.go      the body, query and header of a check
//	forwardauth.go  what gateways ask; identity.go is who a request is of, forwarded.go the same over gRPC
//	admin.go        calls of the admin listener; top.go, session.go
//
// Below it are input (bodies and queries), access (callers and hosts), paths (routes), conn (connections) and answer (JSON and header fields).
//
// It guarantees:
//
//   - Every answer is one of openapi.yaml. A request that breaks a rule gets a
//     problem document that lists its errors and is never charged.
//   - Forward-auth calls are answered with 200, 429 or 403 only, because gateways
//     take a 5xx for an outage of the limiter. (net/http itself answers 400 or 431
//     to malformed requests.)
//   - A refusal arrives: a connection is drained before it is closed.
//
// It decides nothing, stores no usage, opens no listener and starts no goroutine.
// Settings are read once per request through a func, so that a reload takes effect
// with the next request. Everything here is safe for concurrent use.
package httpapi
