package loglimit_test

import (
	"bytes"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/regiond/regiond/internal/base/loglimit"
)

// logger writes lines without their time.
func logger(to *bytes.Buffer) slog.Handler {
	return slog.NewTextHandler(to, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey {
			return slog.Attr{}
		}
		return a
	}})
}

func TestRate(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	log, r, now := slog.New(logger(&out)), loglimit.NewRate(2, 10*time.Second), time.Unix(1, 0)
	for _, second := range []int{0, 0, 0, 9, 10, 10, 31} { // two at once, then one each ten seconds
		r.Warn(log, now.Add(time.Duration(second)*time.Second), "a", "a line", "at", second)
	}
	r.Warn(log, now, "b", "another kind")
	r.Forget()
	r.Warn(log, now, "a", "anew")
	want := `level=WARN msg="a line" at=0
level=WARN msg="a line" at=0
level=WARN msg="a line" at=10 suppressed=2
level=WARN msg="a line" at=31 suppressed=1
level=WARN msg="another kind"
level=WARN msg=anew
`
	if out.String() != want {
		t.Errorf("logged\n%swant\n%s", &out, want)
	}
}

// What an enemy can name is bounded: beyond that all share one kind.
func TestRateBoundsKinds(t *testing.T) {
	t.Parallel()
	r, passed := loglimit.NewRate(1, time.Hour), 0
	for n := range 10_000 {
		if _, ok := r.Pass(fmt.Sprint(n), time.Unix(1, 0)); ok {
			passed++
		}
	}
	if passed != 257 {
		t.Errorf("%d lines", passed)
	}
}

func TestHandler(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	log := slog.New(loglimit.NewRate(2, time.Hour).Handler(logger(&out)))
	for n := range 4 {
		log.Info(fmt.Sprint("line ", n))
	}
	if n := strings.Count(out.String(), "line"); n != 2 {
		t.Errorf("%d lines:\n%s", n, &out)
	}
}

func TestFault(t *testing.T) {
	t.Parallel()
	var f loglimit.Fault
	got := fmt.Sprint(f.Ends(), f.Begins(), f.Begins(), f.Lasts(), f.Ends(), f.Lasts(), f.Ends(), f.Is(false), f.Is(true), f.Is(true), f.Is(false), f.Is(true))
	if want := "false true false true true false false false true false false true"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}
