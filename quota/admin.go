package quota

import "time"

// TopBy is what partitions are ranked by. The zero value is TopDenied.
type TopBy uint8

const (
	// TopDenied: units of checks that a limit denied, or would have denied under observe.
	TopDenied TopBy = iota
	// TopUsed: units of checks that were allowed, and of reports.
	TopUsed
)

// TopWindows are those that partitions can be ranked in.
var TopWindows = [...]time.Duration{time.Minute, time.Hour}

// MaxTopRows is the most rows of a TopReport.
const MaxTopRows = 1000

// TopQuery asks which partitions were denied or used most.
type TopQuery struct {
	By     TopBy
	Policy string        // "" for all
	Window time.Duration // one of TopWindows
	Scope  Scope
	Rows   int // at most, 1…MaxTopRows
}

// TopRow is one partition under one limit.
type TopRow struct {
	Tenant    string `json:"tenant"` // "" for the partition that unlisted tenants beyond max_unknown share
	Policy    string `json:"policy"`
	Limit     string `json:"limit"`
	Partition string `json:"partition"`
	// AtLeast and AtMost hold the units between them, in what the report covers.
	AtLeast int64 `json:"at_least"`
	AtMost  int64 `json:"at_most"`
}

// TopReport is the answer to a TopQuery.
type TopReport struct {
	By     TopBy  `json:"by"`
	Policy string `json:"policy,omitempty"`
	// WindowMS is what was asked for. CoversMS is what the counts are of: one window to two,
	// less after a start, to within a second and BehindMS.
	WindowMS int64  `json:"window_ms"`
	CoversMS int64  `json:"covers_ms"`
	Scope    Scope  `json:"scope"`
	Region   string `json:"region"`
	// Regions are those that are counted, in the order of the topology, and Absent those that
	// are not although Scope is global: Rows and Total lack what they counted.
	Regions   []string `json:"regions"`
	Absent    []string `json:"absent,omitempty"`
	Processes int      `json:"processes"` // that are counted
	// BehindMS is how old the oldest counts of another process are; at most 16 s.
	BehindMS int64 `json:"behind_ms"`
	// Rows are the partitions with the largest AtLeast first. No other has more than OthersAtMost.
	Rows         []TopRow `json:"rows"`
	OthersAtMost int64    `json:"others_at_most"`
	// Total is the sum over all partitions and limits, of all policies.
	Total int64 `json:"total"`
	// Notes say what a reader should know: that names are hashes, that regions do not share.
	Notes []string `json:"notes,omitempty"`
}

// RegionReset is what became of a reset in one region.
type RegionReset struct {
	Region string      `json:"region"`
	Result ResetResult `json:"result"`
	// BurntMS is for how long the region's own share of a limit with max_overshoot counts as used yet, whichever is the last: a
	// reset does not end that. −1: until it is known whether its store has lost data, or its store's clock runs well again.
	BurntMS int64 `json:"burnt_ms,omitempty"`
}

// ResetResult says what a region did.
type ResetResult string

// The results of a reset.
const (
	ResetCleared   ResetResult = "cleared"
	ResetFailed    ResetResult = "failed"    // it was asked, and did not finish in time
	ResetUnreached ResetResult = "unreached" // it did not answer
)
