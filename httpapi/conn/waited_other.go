//go:build !linux

package conn

import "time"

// Waited is not known here.
func (*Conn) Waited() time.Duration { return 0 }
