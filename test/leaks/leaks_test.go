package leaks

import (
	"testing"
	"time"
)

func TestMain(m *testing.M) { Main(m) }

// TestLeft finds a goroutine that stays, and waits for one that ends later than goleak
// would wait.
func TestLeft(t *testing.T) {
	None(t)
	stop := make(chan struct{})
	go func() { <-stop }()
	if err := left(0); err == nil {
		t.Error("a goroutine that runs was not found")
	}
	time.AfterFunc(2*time.Second, func() { close(stop) })
	if err := left(patience); err != nil {
		t.Error(err)
	}
}
