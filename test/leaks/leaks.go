// Package leaks fails tests that leave goroutines behind.
//
// It looks with goleak, but waits longer: goleak gives up after half a second. Some
// libraries look only once a second whether they have been closed (fasthttp's workers,
// the Redis client after failed dials), and a probe of memberlist ends with its own
// timeout, which is up to eight probe intervals.
package leaks

import (
	"fmt"
	"os"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// patience bounds the wait for goroutines that are about to end.
const patience = 20 * time.Second

// Main runs the tests of a package, and fails if they leave a goroutine behind.
func Main(m *testing.M) {
	code := m.Run()
	if code == 0 {
		if err := left(patience); err != nil {
			fmt.Fprintln(os.Stderr, "the tests passed, but", err)
			code = 1
		}
	}
	os.Exit(code)
}

// None fails t if it leaves a goroutine behind that was not there when None was called.
func None(t *testing.T) {
	before := goleak.IgnoreCurrent()
	t.Cleanup(func() {
		if err := left(patience, before); err != nil {
			t.Error(err)
		}
	})
}

// left returns an error that names the goroutines which still run after limit.
func left(limit time.Duration, options ...goleak.Option) error {
	for began := time.Now(); ; {
		err := goleak.Find(options...)
		if err == nil || time.Since(began) > limit {
			return err
		}
	}
}
