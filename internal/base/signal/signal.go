// Package signal says that there is something to do, however often it is said before anybody looks: on channels of
// capacity one, so that nobody waits.
package signal

// Send puts something into c unless it holds something already.
func Send(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// Taken takes what c holds, and reports whether it held anything. It is for those who cannot wait, as a simulator.
func Taken(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}
