// Package metricsdoc reads docs/observe.md, so that tests can hold the page against
// what the daemon exports, and the alert rules against the page. It reads files and
// starts nothing.
package metricsdoc
