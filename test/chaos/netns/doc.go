// Package netns makes network namespaces for tests that run a whole deployment on
// one machine: each namespace is a host of its own, with its own loopback and ports.
//
//	ns, err := netns.New("eu-west")
//	defer ns.Close()
//	err = ns.Start(exec.Command("redis-server"))   // lives there, dies with this process
//	conn, err := ns.Dial(ctx, "tcp", "127.0.0.1:6379")
//
// Namespaces have no entry in the file system. The kernel keeps one for as long as a
// process or an open file is in it and frees it then, so nothing is left behind after
// a panic, Ctrl-C or SIGKILL, and there is nothing stale to look for. The label is for
// people; `nsenter -t PID -n` looks into the namespace of a process that runs there.
//
// It needs Linux and the rights to unshare and configure a network, which root has.
package netns
