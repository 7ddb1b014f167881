// Package gateway runs regiond behind a gateway, as an operator would, and looks
// at both from where a customer stands: the far side of the gateway.
//
//	customer ── gateway ── app
//	               └────── regiond ── redis-server
//
// A folder of examples/ describes its gateway as an Example: how it is started on
// the folder's own files, how a customer proves who he is, which line of the file
// decides what happens while regiond is away. Example.Run tells the story that
// every gateway has to hold, so that their tables can be compared line by line;
// what is peculiar to one gateway is tested beside its files.
//
// Only tests import this package. Everything it starts ends with the test.
package gateway
