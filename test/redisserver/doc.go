// Package redisserver starts real redis-server processes for tests, and does to
// them what happens to them in production: they are killed, restarted on the
// same address, frozen, and their wall clock is stepped or drifts. A process may also be throttled.
//
//	srv := redisserver.Start(t, redisserver.Options{Clock: true})
//	srv.Step(-time.Hour)                   // TIME goes back an hour, uptime does not
//	srv.Freeze(); defer srv.Thaw()         // connected, silent
//	srv.Kill(); srv.Restart()              // same port, empty (nothing is persisted)
//
// What it promises: Start returns when the server answers, the process is gone
// when the test ends (on Linux even when the test binary dies), and a server
// that cannot be had fails the test: it is never skipped, since exactness on a
// real Redis is what most callers are there to show.
//
// What it does not: TLS. The server listens on loopback alone, with persistence off
// unless Options.Args turns it on.
package redisserver
