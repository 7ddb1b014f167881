package quota

// RegionReset is what became of a reset in one region.
type RegionReset struct {
	Region string      `json:"region"`
	Result ResetResult `json:"result"`
}

// ResetResult says what a region did.
type ResetResult string

// The results of a reset.
const (
	ResetCleared   ResetResult = "cleared"
	ResetFailed    ResetResult = "failed"    // it was asked, and did not finish in time
	ResetUnreached ResetResult = "unreached" // it did not answer
)
