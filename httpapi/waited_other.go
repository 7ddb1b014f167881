//go:build !linux

package httpapi

import "time"

// waited is not known here.
func (*connection) waited() time.Duration { return 0 }
