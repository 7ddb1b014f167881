// Package top counts which partitions were denied or used most, in bounded memory and with
// bounds that always contain the truth. Nothing here decides anything: a Recorder is given
// what was decided, off the path of the request, and answers who it was.
package top
