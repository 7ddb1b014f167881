//go:build linux

package chaos

import (
	"cmp"
	"fmt"
	"os"
	"strings"
	"time"
)

const (
	// spare is the part of the processors' time that must be idle under a scenario's traffic. With less, an answer is
	// late since it queues for a processor, whatever the fault does. Where roomy of it is idle, more is sent.
	spare, roomy = 0.3, 0.45
	// crowd is how much more of it has to be idle where a crowd comes later.
	crowd = 0.3
	// slower is how much is sent after a look that found less idle, and slowest how much at least.
	slower, slowest = 0.8, 0.25
	// look is for how long processors are watched.
	look = 2 * time.Second
)

// kind is what the machine's room depends on.
type kind struct{ bounded, overload bool }

// paces are the part of the intended requests that this machine has room for, as far as scenarios of a kind have found.
var paces = map[kind]float64{}

func (x *trial) kind() kind { return kind{x.Bounded, x.Overload != ""} }

func (x *trial) paced(rate int) int { return int(float64(rate) * cmp.Or(paces[x.kind()], 1)) }

// settle sends traffic until the processors are idle enough beside it, or as little as is of use is sent.
func (x *trial) settle() error {
	for {
		all, idle, err := jiffies()
		if err != nil {
			return err
		}
		x.traffic(look, nil)
		allNow, idleNow, err := jiffies()
		if err != nil {
			return err
		}
		part, pace := float64(idleNow-idle)/float64(allNow-all), cmp.Or(paces[x.kind()], 1)
		if x.Overload != "" {
			part -= crowd
		}
		switch {
		case part >= roomy:
			paces[x.kind()] = min(1, pace/slower)
			return nil
		case part >= spare || pace <= slowest:
			return nil
		}
		paces[x.kind()] = max(slowest, pace*slower)
		x.w.History.Note(fmt.Sprintf("processors are idle for %.0f %% of the time, without what a crowd takes: %d requests a second are sent from now on", 100*part, x.rate()))
	}
}

// jiffies are the time of all processors since the machine began, and the part in which they were idle.
func jiffies() (all, idle int64, err error) {
	text, err := os.ReadFile("/proc/stat")
	if err != nil {
		return 0, 0, err
	}
	line, _, _ := strings.Cut(string(text), "\n")
	var user, nice, system, wait, interrupt, soft, steal int64
	if _, err = fmt.Sscanf(line, "cpu %d %d %d %d %d %d %d %d", &user, &nice, &system, &idle, &wait, &interrupt, &soft, &steal); err != nil {
		return 0, 0, fmt.Errorf("/proc/stat: %q: %w", line, err)
	}
	return user + nice + system + idle + wait + interrupt + soft + steal, idle + wait, nil
}
