package zones_test

import (
	"strings"
	"testing"
	"time"

	"github.com/regiond/regiond/internal/base/zones"
)

func TestLoad(t *testing.T) {
	for name, summer := range map[string]int{"UTC": 0, "Europe/Berlin": 7200, "America/Sao_Paulo": -10_800} {
		zone, err := zones.Load(name)
		if err != nil {
			t.Fatal(err)
		}
		if _, offset := time.Date(2026, 7, 1, 0, 0, 0, 0, time.UTC).In(zone).Zone(); offset != summer || zone.String() != name {
			t.Errorf("%s is %s, ahead by %d s", name, zone, offset)
		}
	}
	for name, meant := range map[string]string{
		"europe/berlin": "Europe/Berlin", "America/New York": "America/New_York", "Berlin": "Europe/Berlin", "Mars/Phobos": "", "Europe/": "", "": "", "../etc/passwd": "",
	} {
		_, err := zones.Load(name)
		if err == nil {
			t.Fatalf("%q is a zone", name)
		}
		if _, got, _ := strings.Cut(err.Error(), "did you mean "); strings.Trim(got, `"?`) != meant {
			t.Errorf("%q: %v", name, err)
		}
	}
}
