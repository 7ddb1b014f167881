// Package view decides which regions a process can count on, and how many units of
// each global limit its region may therefore hold.
//
// DESIGN.md draws what leads to what, and names the files.
//
// It promises that regions which use a group of more than themselves use the same
// one as its other members, as soon as their heartbeats have been delivered: groups
// are equal or disjoint, and the shares of a limit are allocated once.
//
// Viewer and View are pure: no goroutine, no clock, no I/O. Ceilings joins a View to
// the ledger for the limiter, Manager keeps the View up to date, and CounterRecovery
// reads usage back from the store. Nothing here opens a connection, and each part can
// be driven step by step, as the simulator does.
package view
