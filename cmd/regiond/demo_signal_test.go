//go:build unix

package main

import (
	"context"
	"syscall"
	"testing"
	"time"
)

// TestDemoCtrlC: the signal itself ends it, in order.
func TestDemoCtrlC(t *testing.T) {
	d := startDemo(t)
	d.end = context.CancelFunc(func() {
		if err := syscall.Kill(syscall.Getpid(), syscall.SIGINT); err != nil {
			t.Error(err)
		}
	})
	if took := d.stop(t); took > 10*time.Second {
		t.Errorf("it takes %v to stop", took)
	} else {
		t.Logf("it stops in %v", took)
	}
	if err := demoPortsFree(t, d.port); err != nil {
		t.Errorf("after its end: %v", err)
	}
	d.end = func() {} // the signal is nobody's now
}
