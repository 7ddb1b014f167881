// Package judge holds what was recorded in a run against what regiond promises. Each
// oracle is a pure function over records and returns what it objects to, in words that
// name the moment and the numbers; none objects to what may have been so: where only an
// interval is known in which something happened, it must be wrong wherever it happened.
//
//	Answered      every request one answer, of the right status
//	Labelled      every answer names its basis, and no degraded one looks exact
//	Prompt        no answer later than a bare handler's in the same second, and a bound
//	Window        in no window does a region admit more than a regional limit
//	Charged       what Redis holds is what was admitted, nothing twice
//	Linear        some order of concurrent calls explains every regional answer (porcupine)
//	Global        what all admit above a global limit is explained, unit by unit
//	Share         regions that are cut off hold to their parts
//	Modest        a tenant that uses less than its share is never denied
//
// It judges with test/oracle, which shares no code with the program.
package judge
