// Package limiter decides, exactly, in the region's own Redis, or in this
// process's memory with the same meaning. One check takes this way:
//
//	httpapi, grpcapi       a request of a protocol becomes a quota.Request
//	limiter.go             Limiter.Check
//	rules.go, domain.go    resolve: the policy, the key plan (store/key_plan.go), the keys
//	places.go              whether the partition is counted as itself or shares one
//	bounds.go              the ceilings that other regions leave
//	deny_cache.go          or the denial that still holds
//	check.go               askStore: the store (redisstore/store.go, its script) or
//	fallback.go            the policy's fail mode, by memory (memstore), which own.go
//	                       has Redis remember later
//	check.go               decision and finish: the answer
//	explain.go, metrics.go what it says of itself
//
// It promises: over any window (t−W, t] of the store's clock a sliding_log limit
// admits at most L; all limits of a check are decided together, all or nothing; a
// denial charges nothing; nothing is charged twice; and one answer comes within
// the budget, whatever the store does. When the store is away the policy's fail
// mode answers, and the answer says so.
//
// It does not know HTTP, other regions, or where its configuration comes from.
// internal/daemon gives it policies (Config), a store.Store, and the ceilings of global
// limits. See DESIGN.md, and those of store, redisstore and memstore.
package limiter
