//go:build linux

package chaos

import (
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// ahead is how much nicer than others this run is treated by the scheduler: what else
// goes on on the machine must not be taken for regiond's doing.
const ahead = -10

// PutAhead has the scheduler prefer this process, and all that it starts, to others. Where the
// kernel groups processes by session, that is the session's to have, so it is given back
// by the function that is returned. The priority boost is optional: errors are ignored.
func PutAhead() (giveBack func()) {
	threads, _ := os.ReadDir("/proc/self/task")
	for _, t := range threads { // those that are made later inherit it
		if id, err := strconv.Atoi(t.Name()); err == nil {
			_ = unix.Setpriority(unix.PRIO_PROCESS, id, ahead)
		}
	}
	const group = "/proc/self/autogroup"
	text, err := os.ReadFile(group)
	_, before, ok := strings.Cut(strings.TrimSpace(string(text)), "nice ")
	if err != nil || !ok {
		return func() {}
	}
	if before == strconv.Itoa(ahead) {
		before = "0" // a run that was killed has not given it back
	}
	_ = os.WriteFile(group, []byte(strconv.Itoa(ahead)), 0)
	return func() { _ = os.WriteFile(group, []byte(before), 0) }
}
