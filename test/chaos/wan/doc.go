// Package wan is the network between regions of one machine: a program of our own that
// carries packets between network namespaces and does to them what long lines do.
//
//	eu-west: wan0 ──read──▶ fate(link eu-west→us-east) ──when due──▶ write ── wan0 :us-east
//
// Each namespace has one TUN device. A packet's destination address determines where it
// goes, the Link of that pair in that direction what becomes of it: delayed, lost,
// repeated, overtaken, or cut, TCP and UDP apart. Each direction draws from a generator
// of its own that is seeded, so the n-th packet of a link meets the same fate in every
// run of the same seed, though packets themselves differ from run to run.
//
// What it does not: bandwidth, corruption, IPv6. It needs Linux, root and /dev/net/tun.
package wan
