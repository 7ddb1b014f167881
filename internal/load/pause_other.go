//go:build !unix

package load

import "time"

func pause(d time.Duration) { time.Sleep(d) }
