// Package cli holds the commands of regiond that talk to a running one or read a
// file: check, regions, bench, healthcheck, validate, version. A command takes its
// arguments and returns an exit code, and an error for main to print.
package cli
