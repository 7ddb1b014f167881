package demo

import (
	"fmt"
	"slices"
	"strings"
	"sync"
)

// Cuts says which regions are cut off from all others, in both directions. Safe
// for concurrent use.
type Cuts struct {
	regions []string // in the topology's order

	mu    sync.RWMutex
	off   map[string]bool
	addrs map[string]string // region by gossip address
}

// NewCuts begins without a cut.
func NewCuts(regions []string) *Cuts {
	return &Cuts{regions: slices.Clone(regions), off: map[string]bool{}, addrs: map[string]string{}}
}

// UnknownRegionError is a region that the demo does not have.
type UnknownRegionError struct {
	Region string
	Known  []string
}

// Error names those that it has.
func (e *UnknownRegionError) Error() string {
	return fmt.Sprintf("there is no region %.64q here; there are %s", e.Region, strings.Join(e.Known, ", "))
}

// Set cuts a region off, or connects it again. changed is false when it was so
// already. The error is an *UnknownRegionError.
func (c *Cuts) Set(region string, off bool) (changed bool, err error) {
	if !slices.Contains(c.regions, region) {
		return false, &UnknownRegionError{region, slices.Clone(c.regions)}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	changed = c.off[region] != off
	c.off[region] = off
	return changed, nil
}

// Off lists the regions that are cut off, in the topology's order.
func (c *Cuts) Off() []string {
	c.mu.RLock()
	defer c.mu.RUnlock()
	off := []string{}
	for _, r := range c.regions {
		if c.off[r] {
			off = append(off, r)
		}
	}
	return off
}

// between tells whether nothing passes from one region to another. What a region
// sends to itself always passes.
func (c *Cuts) between(a, b string) bool {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return a != b && (c.off[a] || c.off[b])
}

// at notes where a region gossips.
func (c *Cuts) at(addr, region string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.addrs[addr] = region
}

// to tells whether nothing passes from a region to a gossip address.
func (c *Cuts) to(region, addr string) bool {
	c.mu.RLock()
	other := c.addrs[addr]
	c.mu.RUnlock()
	return c.between(region, other)
}
