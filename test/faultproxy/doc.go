// Package faultproxy stands between regiond and a Redis server in tests and
// breaks the path where a network would: exactly at one reply.
//
//	client ──requests──▶ proxy ──▶ redis-server
//	       ◀──replies───   ✂
//
// It parses just enough RESP to separate replies and to know which
// command each answers, so that a test can "lose the reply to the third
// script" and mean that one, whatever handshakes and pings the client sends:
//
//	proxy := faultproxy.Start(t, srv.Addr())
//	struck := proxy.Arm(faultproxy.Fault{Kind: faultproxy.Swallow, Reply: 3, Scripts: true})
//	…                                      // the client talks to proxy.Addr()
//	<-struck                               // the server has carried out the third script
//
// What it promises: requests reach the server unchanged and in order, replies
// other than the struck one reach the client unchanged and in order, an armed
// fault strikes once, every method may be called at any time from any goroutine,
// and nothing runs any longer when Close returns.
//
// What it does not: TLS, CLIENT REPLY OFF, subscriptions (their confirmations
// are not one reply for one command), faults on the way to the server.
package faultproxy
