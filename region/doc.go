// Package region reads topology.yaml: which regions exist, the policies and tenants they
// enforce, and (Shares) how a global limit is divided among regions. Its subpackages keep what
// one process knows of the others.
//
// # How a silent region is noticed
//
// A region that falls silent takes this way to a smaller ceiling here:
//
//	sync/peertable.go     each usage or heartbeat of a process sets its ReceivedAt   every 500 ms
//	members/judge.go      Judge: a process without one for SilentAfter is silent,    1.3 s
//	                      dead if gossip (of a sibling: the store) says so too;
//	                      a dead process does not count, a silent one does
//	view/peerstate.go     evaluate: a region is as bad as the worst of its live processes
//	view/peerstate.go     step: anything but fresh excludes it at once; it returns
//	                      when it was good for FirstWait, or longer if that happens again
//	view/viewer.go        build: the regions that are in are the candidate M, which heartbeats
//	                      advertise; decide: M in use is the candidate once all of it
//	                      advertise the same, and our region alone until then
//	view/ceiling.go       Ceiling: the shares of M less what M used; by fail mode, all or nothing
//
// view/manager.go has this done every 50 ms and when something changed. The ways back and the
// other reasons to exclude a region are in the same files: Judge's table, and the diagrams above
// peerState and Viewer. gossip feeds Judge's second column, state its siblings' one.
//
// # How a topology is read
//
// Parse and Load make a *Topology and, of a file that is none, an *Invalid. DESIGN.md shows the way through the files. hash.go and
// shares.go are what others ask of a topology. Package warnings finds what is allowed and probably not meant.
//
// A Topology from Parse obeys every rule of the schema, so no other package
// checks again. A file that does not is refused with line, column, pointer and
// rule of every mistake, and no input makes Parse panic or take unbounded time or
// memory.
//
// The package opens no files but in Load, resolves no names, reads no secrets (it holds only
// their paths) and starts nothing. Everything in it is a value or a pure function,
// and safe for concurrent use while nobody changes a Topology that is in force.
package region
