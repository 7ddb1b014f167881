// Package region reads topology.yaml: which regions exist, the policies and
// tenants they enforce, and (Parts) how a global limit is divided among regions.
//
//	topology.yaml ──Parse──▶ *Topology ──┬─ Region     listeners, store and bus of one region
//	                 │                   ├─ Policies   the limits, and the Tenants they apply to
//	                 ├─ warnings         │
//	                 └─ *Invalid         └─ Hash       what all regions must agree on, in 16 characters
//
// A Topology from Parse obeys every rule of the schema, so no other package
// checks again. A file that does not is refused with line, column, pointer and
// rule of every mistake, and no input makes Parse panic or take unbounded time or
// memory.
//
// The package opens no files, resolves no names, reads no secrets (it holds only
// their paths) and starts nothing. Everything in it is a value or a pure function,
// and safe for concurrent use while nobody changes a Topology that is in force.
package region
