package quota

import (
	"strings"
	"time"
)

// Explanation gives the terms behind a decision.
type Explanation struct {
	Region     string `json:"region"`
	ConfigHash string `json:"config_hash"`
	StoreUS    int64  `json:"store_time_us,omitempty"`
	// Unlisted is whether the tenant has no entry of its own. Shared is whether an unlisted one shares its
	// partitions with others, or a value of a listed one's dimensions with other values: there was no place.
	Unlisted bool               `json:"unlisted,omitempty"`
	Shared   bool               `json:"shared,omitempty"`
	Limits   []LimitExplanation `json:"limits"`
	// Override is that of the tenant, if one is in force.
	Override *OverrideTerms `json:"override,omitempty"`
	// Sentences are those of the decision.
	Sentences []string `json:"sentences,omitempty"`
}

// OverrideTerms say what an override changes, and whose it is.
type OverrideTerms struct {
	Version   string `json:"version"`
	Changes   string `json:"changes"` // in words
	By        string `json:"by,omitempty"`
	Reason    string `json:"reason,omitempty"`
	ExpiresAt string `json:"expires_at,omitempty"` // RFC 3339
}

// LimitExplanation says how one ceiling came to be.
type LimitExplanation struct {
	Name      string `json:"name"`
	Algorithm string `json:"algorithm"`
	Partition string `json:"partition"`
	Ceiling   int64  `json:"ceiling"`
	// Ends is when the period of a limit with a calendar ends, RFC 3339; "" where the store was not asked.
	Ends string `json:"ends,omitempty"`
	CeilingTerms
}

// CeilingTerms is what a ceiling was computed from.
type CeilingTerms struct {
	Formula string `json:"formula"` // with its numbers
	Part    int64  `json:"part"`    // this region's share of the limit
	// Lost is what this region admitted and its store no longer holds.
	Lost  int64      `json:"lost,omitempty"`
	Peers []PeerTerm `json:"peers,omitempty"`
	// Bound is there for a limit with max_overshoot.
	Bound *BoundTerms `json:"bound,omitempty"`
}

// BoundTerms is how many units a region may hold under a limit's bound, and whether that or
// the estimate of what others used decides.
type BoundTerms struct {
	Units    int64 `json:"units"`              // B: what all regions may hold together in any window
	Share    int64 `json:"share"`              // this region's part of it
	Lent     int64 `json:"lent"`               // of the share
	Borrowed int64 `json:"borrowed"`           // of other regions
	Recalled int64 `json:"recalled"`           // left unused, to be returned
	Estimate int64 `json:"estimate,omitempty"` // the ceiling by the estimate; none with max_overshoot: 0%
	// KeepMS is how long what was lent and used may count: in any window the largest bound holds that some region had in it or so
	// long before. Overridden is whether the tenant has, or had, an override, so that bounds may differ.
	KeepMS     int64 `json:"keep_ms"`
	Overridden bool  `json:"overridden,omitempty"`
	// BurntMS is how long the share counts as used yet, since the region's store has lost data.
	BurntMS int64 `json:"burnt_ms,omitempty"`
	// Drifting says that nothing is admitted while the clock of the region's store runs too fast or too slow.
	Drifting bool `json:"drifting,omitempty"`
	// Differ are the regions with another configuration, in which B may be another, and Unseen those whose configuration is
	// not known now. PendingMS is how long after all have had the same what was admitted under another may count.
	Differ    []string `json:"differ,omitempty"`
	Unseen    []string `json:"unseen,omitempty"`
	PendingMS int64    `json:"pending_ms,omitempty"`
	// Binds is what decides: "closed" (nothing is admitted: by Drifting, or until it is known whether the store has lost data),
	// "burnt" (what is borrowed), "share" (with what is lent and borrowed) or "estimate".
	Binds string `json:"binds"`
}

// Close completes the terms for a bound at the store's TIME.
func (t *BoundTerms) Close(b Bound, nowUS int64) {
	why, left := b.Closed(nowUS)
	t.Drifting, t.BurntMS, t.Binds = b.Drifting, 0, "share"
	switch {
	case why == ReasonBoundClosed:
		t.Binds = "closed"
	case why == ReasonBoundBurnt:
		t.BurntMS, t.Binds = (left + time.Millisecond - 1).Milliseconds(), "burnt"
	case t.Estimate > 0 && t.Estimate < t.Share-t.Lent+t.Borrowed-t.Recalled:
		t.Binds = "estimate"
	}
}

// PeerTerm is another region's part in a ceiling.
type PeerTerm struct {
	Region   string `json:"region"`
	Weight   int64  `json:"weight"`
	Part     int64  `json:"part"`
	Estimate int64  `json:"estimate"`       // units it is believed to have used
	Held     int64  `json:"held,omitempty"` // and those that its open reservations hold
	// Counted is whether it is one of the regions whose parts are pooled.
	Counted bool   `json:"counted"`
	State   string `json:"state"`
	// Reason is why it is treated as unreachable, "" when it is.
	Reason string `json:"reason,omitempty"`
	// AgeMS is how long ago its last message arrived; −1: never.
	AgeMS int64 `json:"age_ms"`
	// OffsetMS is how far its store's clock is ahead of ours, for display.
	OffsetMS float64 `json:"offset_ms"`
}

// WindowText is a window as in topology.yaml: 1m, not 1m0s.
func WindowText(w time.Duration) string {
	text := w.String()
	if strings.HasSuffix(text, "m0s") {
		text = strings.TrimSuffix(text, "0s")
	}
	if strings.HasSuffix(text, "h0m") {
		text = strings.TrimSuffix(text, "0m")
	}
	return text
}
