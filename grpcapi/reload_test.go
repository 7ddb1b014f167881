package grpcapi_test

import (
	"testing"

	"github.com/regiond/regiond/limiter"
)

// TestDomainRemovedMeanwhile: a request that is under way when a reload removes its domain is decided by the file that it
// began with.
func TestDomainRemovedMeanwhile(t *testing.T) {
	w := serve(t, basics, nil)
	w.ask(t, descriptor("user=a"))
	if err := w.limiter.Configure(limiter.Config{Region: "local", MaxUnknown: 1000, MaxValues: 1000}); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"ok: ok/1", "ok: ok/0", "over: over/0"} {
		if got := story(w.ask(t, descriptor("user=a"))); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}
