package cli

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/regiond/regiond/internal/load"
)

func TestProgressLine(t *testing.T) {
	var b strings.Builder
	l := &progressLine{out: &b, all: 12 * time.Second}
	for _, p := range []load.Progress{
		{Passed: time.Second, Warming: true, Counts: load.Counts{Sent: 1000, Answered: 990, Denied: 7}, InFlight: 10},
		{Passed: 6 * time.Second, Counts: load.Counts{Sent: 6000, Answered: 5990, Denied: 70, Shed: 4, Failed: 2}, Unsent: 3, InFlight: 5},
		{Passed: 14 * time.Second, Counts: load.Counts{Sent: 12000, Answered: 12000}},
	} {
		l.show(p)
	}
	l.clear()
	const want = "\r[#               ]   1s of 12s  990 answered, 7 denied, 0 failed, 10 waiting, warming up\x1b[K" +
		"\r[########        ]   6s of 12s  5990 answered, 70 denied, 2 failed, 5 waiting, 4 shed, 3 unsent\x1b[K" +
		"\r[################]  14s of 12s  12000 answered, 0 denied, 0 failed, 0 waiting\x1b[K\r\x1b[K"
	if b.String() != want {
		t.Errorf("%q", b.String())
	}
	f, err := os.Create(t.TempDir() + "/no-terminal")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for _, l := range []*progressLine{newProgressLine(f, time.Second), newProgressLine(&b, time.Second)} {
		if l.show(load.Progress{}); l.out != nil {
			t.Error("a line that changes goes to what is no terminal")
		}
		l.clear()
	}
	if text, err := os.ReadFile(f.Name()); err != nil || len(text) > 0 {
		t.Errorf("%q, %v", text, err)
	}
}
