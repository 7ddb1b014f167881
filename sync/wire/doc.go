// Package wire is the format of messages between regions, and the only place that
// knows it: protobuf, versioned, bounded before anything is allocated.
package wire
