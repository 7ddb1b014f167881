// Mutants plants small mistakes in the program, one at a time, and asks whether the
// tests notice. A green run says that nothing is wrong, or that nobody looked: each
// mutant here breaks one promise, and the test that guards it must fail.
//
//	make mutants                   all of them, in a few minutes
//	make mutants MUTANT=lua-edge   one, with what its tests said
//	go run ./test/mutants -list    what there is, and what it breaks
//
// No file is changed: a mutant is a copy of one source file, Lua included, that
// `go test -overlay` compiles in its place. What becomes of it is told in a table:
//
//	killed     every test that the table names for it failed, by an assertion
//	survived   one of them passed: nobody guards that promise
//	wrong      the table is: the old text does not stand in the file exactly once,
//	           the mutant does not compile, a test panics or hangs instead of
//	           failing, or fails without the mutant as well
//
// The exit code is 0 when all are killed, 1 when not, 2 for a mistake in the call.
//
// To add one, write a row in the table of its room (quota.go, limiter.go, sync.go,
// region.go, hall.go). Choose an old text that says one thing and stands once, name
// the promise that is broken in its own words, and the narrowest test that guards it,
// of any package: a row may name several, and all must fail. When no test does, the
// mutant has found a hole; the test comes first.
//
// It builds and runs tests, and is no part of the program.
package main
