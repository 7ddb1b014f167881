// Package answer renders what httpapi and grpcapi answer: decisions and problem documents (RFC 9457) as
// JSON, and the header fields of a decision.
//
//	decision.go  a decision as members of a JSON object
//	problem.go   the table of problems, and one as members of a JSON object
//	fields.go    header fields: the rate limit fields in each format, and the decision's id
//
// An answer has the decision exactly; header fields are whole seconds, rounded up and lengthened by at most a
// tenth as jitter. It decides nothing and keeps nothing.
package answer
