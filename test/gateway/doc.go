// Package gateway runs regiond behind a gateway, as an operator would, and tests
// both from the customer's side of the gateway.
//
//	customer ── gateway ── app
//	               └────── regiond ── redis-server
//
// A folder of examples/ describes its gateway as an Example: how it starts on the
// folder's own files, how a customer authenticates, which line of the file decides
// what happens while regiond is down. Example.Run has the scenarios that every
// gateway must pass; what only one gateway does is tested beside its files.
//
// Only tests import this package. Everything it starts ends with the test.
package gateway
