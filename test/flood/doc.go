// Package flood attacks the gossip port and the data listener of a process and reads from the
// kernel what that costs. Under the race detector a process needs several times its memory, so
// this is not in packages gossip and httpapi.
package flood
