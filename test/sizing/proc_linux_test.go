package sizing_test

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"
)

// tick is the unit of times in /proc/PID/stat: a hundredth of a second on every Linux
// that Go runs on.
const tick = 10 * time.Millisecond

// cpuTime is the processor time that a process has used.
func cpuTime(tb testing.TB, pid int) time.Duration {
	tb.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		tb.Fatal(err)
	}
	d, err := statTime(string(text))
	if err != nil {
		tb.Fatal(err)
	}
	return d
}

// statTime reads it from /proc/PID/stat. The program's name is in parentheses and may
// have spaces in it; user and system time are the 12th and 13th field behind.
func statTime(text string) (time.Duration, error) {
	fields := strings.Fields(text[strings.LastIndexByte(text, ')')+1:])
	if len(fields) < 13 {
		return 0, fmt.Errorf("/proc/PID/stat has %d fields behind the name", len(fields))
	}
	user, err := strconv.ParseInt(fields[11], 10, 64)
	if err != nil {
		return 0, err
	}
	system, err := strconv.ParseInt(fields[12], 10, 64)
	return time.Duration(user+system) * tick, err
}

// residentMemory is the memory of a process that is not swapped out, in bytes.
func residentMemory(tb testing.TB, pid int) int64 {
	tb.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", pid))
	if err != nil {
		tb.Fatal(err)
	}
	var size, resident int64
	if _, err := fmt.Sscan(string(text), &size, &resident); err != nil {
		tb.Fatal(err)
	}
	return resident * int64(os.Getpagesize())
}

func TestStatTime(t *testing.T) {
	const line = "4711 (a) b) S 1 4711 4711 0 -1 4194560 1 0 0 0 150 25 0 0 20 0 1 0 100 1 1"
	if d, err := statTime(line); err != nil || d != 1750*time.Millisecond {
		t.Errorf("%v, %v", d, err)
	}
	for _, bad := range []string{"", "1 (a) S 1", strings.Replace(line, "150", "x", 1)} {
		if d, err := statTime(bad); err == nil {
			t.Errorf("%q is %v", bad, d)
		}
	}
	began := cpuTime(t, os.Getpid())
	for cpuTime(t, os.Getpid()) < began+5*tick { // work that is counted
	}
}
