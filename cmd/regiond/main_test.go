package main

import (
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/regiond/regiond/test/leaks"
)

// TestMain holds every test to what run promises: when it has returned, nothing
// of the program is left.
func TestMain(m *testing.M) {
	redis.SetLogger(silence{}) // as main does
	leaks.Main(m)
}
