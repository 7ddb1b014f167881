package members

import (
	"time"

	"github.com/regiond/regiond/quota"
)

// Never is the age, in ms, of what did not happen.
const Never = -1

// RegionRow is one region as this process sees it: a row of GET /v1/regions. Ages and spans
// are in milliseconds.
type RegionRow struct {
	Region      string       `json:"name"`
	Weight      int64        `json:"weight"`
	Self        bool         `json:"self"`
	State       State        `json:"state"`
	InUse       bool         `json:"counted"`                // it is in M: its share is pooled with ours
	Reason      quota.Reason `json:"reason,omitempty"`       // why it is not counted on
	Text        string       `json:"detail,omitempty"`       // the same in words
	SinceMS     int64        `json:"since_ms"`               // how long it has been in this state
	HeardMS     int64        `json:"heard_ms"`               // age of its newest message, of its process silent longest
	AckedMS     int64        `json:"acked_ms"`               // of the newest message of ours that it acknowledged, the same
	RemainingMS int64        `json:"remaining_ms,omitempty"` // until it is counted on again, if it stays good
	Processes   []ProcessRow `json:"processes,omitempty"`
}

// ProcessRow is one process of a region, in our own region a sibling.
type ProcessRow struct {
	Instance string    `json:"instance"`
	Boot     time.Time `json:"boot"`
	State    State     `json:"state"` // by itself; StateDead or StateLeft when it no longer counts
	HeardMS  int64     `json:"heard_ms"`
	AckedMS  int64     `json:"acked_ms"`
	UnsentMS int64     `json:"unsent_ms"`
	// MissingMS is for how long usage that it has published is missing here; 0: none is.
	MissingMS int64 `json:"missing_ms"`
	// Newest is the number of the newest usage that it has published, and Complete the one up
	// to which none is missing.
	Newest   uint64   `json:"newest"`
	Complete uint64   `json:"complete"`
	RTTMS    float64  `json:"rtt_ms"`
	Synced   bool     `json:"digested"`           // a whole snapshot of its usage arrived
	Newcomer bool     `json:"newcomer,omitempty"` // a healthy region is evaluated without it
	Gossip   Word     `json:"gossip"`             // "unknown" where gossip does not know it
	Members  []string `json:"members"`            // the regions that it would count on
}
