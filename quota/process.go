package quota

// Process is one run of one regiond process.
type Process struct {
	Region   string
	Instance string
	Boot     int64 // when it started, µs since the epoch; distinguishes the runs of one instance
}

// Weight is what one region of a topology weighs. A region's share of a global limit
// is its weight over the sum of all weights.
type Weight struct {
	Region string
	Weight int64
}
