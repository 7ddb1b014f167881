package redisstore

import (
	"flag"
	"testing"

	"github.com/regiond/regiond/limiter/limitertest"
)

func TestMain(m *testing.M) {
	flag.Parse()
	if err := flag.Set("test.parallel", "4"); err != nil { // most of those that are parallel wait for servers
		panic(err)
	}
	limitertest.Main(m)
}
