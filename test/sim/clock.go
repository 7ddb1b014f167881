package sim

// StoreUS is what the clock of a region's store shows now, µs since the epoch: what
// usage totals are counted by there.
func (w *World) StoreUS(region int) int64 { return w.sites[region].nowUS() }
