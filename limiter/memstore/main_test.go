package memstore

import (
	"testing"

	"github.com/regiond/regiond/limiter/limitertest"
)

func TestMain(m *testing.M) { limitertest.Main(m) }
