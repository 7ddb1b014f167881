// Package region knows which regions there are, what each of them promises to
// whom, and how much of a global limit is its part.
//
//	topology.yaml ──Parse──▶ *Topology ──┬─ Region     where one region listens and keeps its counts
//	                 │                   ├─ Policies   what is promised, to which Tenants
//	                 ├─ []Warning        ├─ Part       this region's integer share of a limit
//	                 └─ *Invalid         └─ Hash       what all regions must agree on, in 16 characters
//
// It promises that a Topology which came from Parse holds every rule of the
// schema, so that no other room has to check again; that what is refused is
// refused with file, line, column and the rule; and that no input makes it
// panic or take unbounded time or memory.
//
// It does not open files, resolve names, read secrets (it holds only the paths
// to them) or start anything: whoever calls Parse has read the bytes. Everything
// here is a value or a pure function and safe for concurrent use as long as
// nobody changes a Topology that is in force.
package region
