// Package status is the answer of GET /v1/regions: how one regiond sees the
// other regions and why, as JSON for programs and as text for people.
package status

import (
	"time"

	"github.com/regiond/regiond/quota"
	"github.com/regiond/regiond/region/members"
)

// Report is GET /v1/regions: what this process sees, and why. Ages and spans
// are milliseconds; −1 is never.
type Report struct {
	Region     string             `json:"region"`
	Instance   string             `json:"instance"`
	Version    string             `json:"version"`
	ConfigHash string             `json:"config_hash"`
	Mode       Mode               `json:"mode"`
	Store      Store              `json:"store"`
	Clock      Clock              `json:"clock"`
	Bounds     []Bound            `json:"bounds,omitempty"` // those of which nothing of the region's own share is left
	Topology   *Topology          `json:"topology,omitempty"`
	Regions    []Region           `json:"regions"`
	NATS       *NATS              `json:"nats,omitempty"`
	Gossip     []Member           `json:"gossip,omitempty"`
	Drift      *Drift             `json:"config_drift,omitempty"`
	Totals     *Totals            `json:"totals,omitempty"`
	Worst      map[string]float64 `json:"worst_usage,omitempty"` // global count of a window ÷ limit, by limit
}

// Mode is the mode of policies with on_partition: share.
type Mode struct {
	Mode   string   `json:"mode"`
	Reason string   `json:"reason,omitempty"`
	About  []string `json:"about,omitempty"` // the regions that the reason is about
}

// Bound is a limit with max_overshoot of which nothing of the region's own share is left, whatever was used.
type Bound struct {
	Policy string       `json:"policy"`
	Name   string       `json:"limit"`
	Reason quota.Reason `json:"reason"`          // bound_closed or bound_burnt
	Until  *time.Time   `json:"until,omitempty"` // by the store's clock; absent while that is not known
	LeftMS int64        `json:"left_ms"`         // until then
	Text   string       `json:"text"`            // why, and until when
}

// Store is where usage is kept.
type Store struct {
	Kind      string `json:"kind"` // redis or memory
	Available bool   `json:"available"`
	// Epoch is renewed with each loss of data and each step of the store's clock; 0 while
	// that is under way, and when usage is not shared with others.
	Epoch uint32     `json:"epoch,omitempty"`
	Lost  *time.Time `json:"lost,omitempty"` // when data were last lost, by the store's clock
}

// Topology is the regions and weights in force in this region, as its store keeps them.
type Topology struct {
	Revision int64 `json:"revision"`
	// Agreed: every process of every region has it. Until then the smallest shares apply.
	Agreed bool `json:"agreed"`
	// HeldMS is for how long after that limits with max_overshoot keep to them: what was lent and used under others may count.
	HeldMS  int64    `json:"held_ms,omitempty"`
	Refused string   `json:"refused,omitempty"` // why this process goes by another
	Former  []string `json:"former,omitempty"`  // regions that were removed, and whose usage still counts
}

// Clock is the store's.
type Clock struct {
	Valid         bool    `json:"valid"`
	OffsetMS      float64 `json:"offset_ms"` // of the store's clock against this host's, for display only
	UncertaintyMS float64 `json:"uncertainty_ms"`
	DriftPPM      float64 `json:"drift_ppm"`
}

// Region is one region as this process sees it.
type Region struct {
	members.RegionRow
	Offset *Offset `json:"clock,omitempty"`
}

// Offset is that of another region's store's clock.
type Offset struct {
	OffsetMS      float64 `json:"offset_ms"` // its store's clock against ours
	UncertaintyMS float64 `json:"uncertainty_ms"`
	AgeMS         int64   `json:"age_ms"`
	Alarm         bool    `json:"alarm,omitempty"`
}

// NATS is the connection that this process publishes usage through.
type NATS struct {
	Connected bool      `json:"connected"`
	URL       string    `json:"url,omitempty"`
	Since     time.Time `json:"since"`
	LastError string    `json:"last_error,omitempty"`
	Gateways  []Gateway `json:"gateways,omitempty"` // of an embedded server
}

// Gateway is the embedded NATS server's connection with another region's.
type Gateway struct {
	Name     string `json:"name"`
	Inbound  bool   `json:"inbound"`
	Outbound bool   `json:"outbound"`
}

// Member is a process that gossip knows.
type Member struct {
	Name string `json:"name"` // region/instance
	members.Gossip
	Self bool `json:"self,omitempty"`
}

// Drift is a difference between the configurations of processes.
type Drift struct {
	Since  time.Time           `json:"since"`
	Hashes map[string][]string `json:"hashes"` // configuration hash → processes
}

// Totals are sums over all partitions and limits.
type Totals struct {
	Series   int   `json:"series"` // partitions of global limits, of all regions
	UnsentMS int64 `json:"unsent_ms"`
}
