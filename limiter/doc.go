// Package limiter decides, exactly, in the region's own Redis, or in this
// process's memory with the same meaning.
//
// It promises: over any window (t−W, t] of the store's clock a sliding_log limit
// admits at most L; all limits of a check are decided together, all or nothing; a
// denial charges nothing; nothing is charged twice; and one answer comes within
// the budget, whatever the store does. When the store is away the policy's fail
// mode answers, and the answer says so.
//
// It does not know HTTP, other regions, or where its configuration comes from.
// internal/daemon gives it policies (Config), a store.Store, and the ceilings of global
// limits; httpapi asks it. See DESIGN.md, and those of store, redisstore and memstore.
package limiter
