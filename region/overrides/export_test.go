package overrides

import (
	"context"

	"github.com/regiond/regiond/quota"
)

// ReadAll reads all overrides and then compares each with what is kept, as Run does in the course of minutes.
func ReadAll(ctx context.Context, v *Overlay) {
	f := follower{Overlay: v, at: -1}
	for range 2 {
		for f.left = sliceCount; f.left > 0; {
			f.step(ctx)
		}
		f.at = max(0, f.at)
	}
}

// KeyOf is the Redis key of a tenant's override.
func KeyOf(tenant string) string { return sliceKey(sliceOf(tenant)) }

// Repack is an override as a process remembers it.
func Repack(o *quota.Override) *quota.Override {
	var t table
	t.fold(o)
	return t.get(o.Tenant)
}

// Load reads all overrides once.
func Load(ctx context.Context, v *Overlay) {
	f := follower{Overlay: v, at: -1}
	for !v.loaded.Load() {
		f.step(ctx)
	}
}

// AnswerBytes are those of the answers of a process in a second.
const AnswerBytes = answerBytes

// Bytes are what a process counts its overrides as.
func Bytes(v *Overlay) int64 { return v.table.bytes.Load() }
