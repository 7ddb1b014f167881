// Package status is the answer of GET /v1/regions: what one regiond knows of the
// other regions and why, as JSON for programs and as text for people.
package status

import (
	"time"

	"github.com/regiond/regiond/region/view"
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

type Store struct {
	Kind      string `json:"kind"` // redis or memory
	Available bool   `json:"available"`
}

type Clock struct {
	Valid         bool    `json:"valid"`
	OffsetMS      float64 `json:"offset_ms"` // of the store's clock against this host's, for display only
	UncertaintyMS float64 `json:"uncertainty_ms"`
	DriftPPM      float64 `json:"drift_ppm"`
}

// Region is one region, and the offset of its store's clock.
type Region struct {
	view.Peer
	Offset *Offset `json:"clock,omitempty"`
}

type Offset struct {
	OffsetMS      float64 `json:"offset_ms"` // its store's clock against ours
	UncertaintyMS float64 `json:"uncertainty_ms"`
	AgeMS         int64   `json:"age_ms"`
	Alarm         bool    `json:"alarm,omitempty"`
}

type NATS struct {
	Connected bool      `json:"connected"`
	URL       string    `json:"url,omitempty"`
	Since     time.Time `json:"since"`
	LastError string    `json:"last_error,omitempty"`
	Gateways  []Gateway `json:"gateways,omitempty"` // of an embedded server
}

type Gateway struct {
	Name     string `json:"name"`
	Inbound  bool   `json:"inbound"`
	Outbound bool   `json:"outbound"`
}

type Member struct {
	Name       string    `json:"name"` // region/instance
	Addr       string    `json:"addr"`
	State      string    `json:"state"`
	Since      time.Time `json:"since"`
	ConfigHash string    `json:"config_hash"`
	Version    string    `json:"version"`
	Self       bool      `json:"self,omitempty"`
}

type Drift struct {
	Since  time.Time           `json:"since"`
	Hashes map[string][]string `json:"hashes"` // configuration hash → processes
}

type Totals struct {
	Series   int   `json:"series"` // partitions of global limits, of all regions
	UnsentMS int64 `json:"unsent_ms"`
}
