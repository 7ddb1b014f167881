//go:build !linux

package conn

import "time"

// waited is not known here.
func (*Conn) waited() time.Duration { return 0 }
