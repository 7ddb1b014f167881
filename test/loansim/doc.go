// Package loansim judges package loan by true time, which no region knows: Small visits every state of small worlds,
// World plays larger ones in steps of a millisecond with everything that may go wrong.
package loansim
