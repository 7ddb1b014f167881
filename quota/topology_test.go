package quota_test

import (
	"testing"

	"github.com/regiond/regiond/quota"
)

func TestIsLoopback(t *testing.T) {
	t.Parallel()
	for host, want := range map[string]bool{
		"127.0.0.1": true, "127.9.9.9": true, "::1": true, "::ffff:127.0.0.1": true, "localhost": true,
		"": false, "0.0.0.0": false, "::": false, "10.0.0.1": false, "[::1]": false, "localhost.example": false, "127.0.0.1.example": false,
	} {
		if got := quota.IsLoopback(host); got != want {
			t.Errorf("%q is loopback: %t", host, got)
		}
	}
}
