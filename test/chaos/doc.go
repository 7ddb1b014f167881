// Package chaos runs whole deployments of regiond under faults: three regions as they
// are run in earnest, each with its own regiond, Redis and NATS as processes in a
// network namespace, joined by lines of our own making.
//
//	            ┌──────────────── eu-west ────────────────┐
//	traffic ──▶ │ regiond ──▶ Redis      NATS ◀─▶ regiond │ wan0 ──┐
//	            │ bare handler (what the machine does)    │        │   wan.Router:
//	            └─────────────────────────────────────────┘        ├── delay, loss, cuts
//	            ┌──────────────── us-east … ap-south ─────┐ wan0 ──┘   by pair and direction
//
// A scenario starts a World, sends traffic at a rate that does not depend on answers,
// does one Fault to it, heals it, and asks oracles about everything that was recorded:
// package judge. When one of them objects, a report with a timeline is written.
//
// The scenarios are tests behind the build tag chaos, since they need root and
// /dev/net/tun: `make chaos` runs them, README.md lists them.
package chaos
