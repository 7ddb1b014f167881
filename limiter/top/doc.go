// Package top counts which partitions were denied or used most, in bounded memory and with
// bounds that always contain the truth. Nothing here decides anything: a Recorder is given
// what was decided, off the path of the request, and answers who it was.
//
//	recorder.go   events, counted once a second
//	series.go     windows of a minute and of an hour
//	sketch.go     Space-Saving: a thousand counters for any number of names
//	list.go       rows, sums of them, and the report
//	exchange.go   what other processes counted
package top
