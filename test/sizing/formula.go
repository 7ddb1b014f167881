// Package sizing says how much processor time and memory a regiond and its Redis will
// need, and holds that against what they do need. The formula is here; what it is fed
// with comes from short runs on the machine at hand:
//
//	go test -run '^$' -bench Sizing -benchtime 1x ./test/sizing
//
// docs/performance.md explains it. No part of the program uses this package.
package sizing

// Price is what one thing costs, in µs of processor time.
type Price struct {
	Regiond, Redis float64
}

func (p Price) plus(times float64, of Price) Price {
	return Price{p.Regiond + times*of.Regiond, p.Redis + times*of.Redis}
}

// minus is what p costs more than q, and never less than nothing: that is noise.
func (p Price) minus(q Price) Price {
	return Price{max(0, p.Regiond-q.Regiond), max(0, p.Redis-q.Redis)}
}

// Prices are of one machine, per decision, at one rate.
type Prices struct {
	Decision  Price // one regional sliding_log limit, asked of Redis
	Memory    Price // denied from memory, Redis is not asked
	Limit     Price // each further limit of the same partition
	Partition Price // each further partition: a limit by other dimensions
	Global    Price // each partition that a global limit counts
}

// Sizes are bytes in Redis.
type Sizes struct {
	Partition float64 // of a log, whatever is in it
	Unit      float64 // of what is in it
	Total     float64 // of a global partition's usage total in one bucket
}

// Plan is what a region is going to do.
type Plan struct {
	Rate       float64 // decisions per second
	Remembered float64 // the part of them that is denied from memory, 0 to 1
	Limits     int     // limits that a check asks
	Partitions int     // logs that these are counted in
	Globals    int     // of them: logs of global limits
	Live       float64 // partitions that were used lately, of all tenants
	Units      float64 // that all of their logs hold
	Buckets    float64 // live buckets of global partitions, of all tenants
}

// Need is what it takes.
type Need struct {
	Cores       Price   // busy processors: Regiond's and Redis's
	RedisMemory float64 // bytes, beyond an empty Redis
}

// Predict is the formula:
//
//	per decision = remembered · memory + (1 − remembered) ·
//	               (decision + (limits − partitions) · limit + (partitions − 1) · partition + globals · global)
//	cores        = rate · per decision
//	memory       = live · partition + units · unit + buckets · total
func (c *Prices) Predict(s *Sizes, p *Plan) Need {
	asked := c.Decision.
		plus(float64(p.Limits-p.Partitions), c.Limit).
		plus(float64(p.Partitions-1), c.Partition).
		plus(float64(p.Globals), c.Global)
	each := Price{}.plus(p.Remembered, c.Memory).plus(1-p.Remembered, asked)
	return Need{
		Cores:       Price{}.plus(p.Rate/1e6, each),
		RedisMemory: p.Live*s.Partition + p.Units*s.Unit + p.Buckets*s.Total,
	}
}

// Measure takes prices from runs at one rate that differ in one thing each: one
// regional limit; another limit of the same partition; another partition; the limit
// global; and nearly all denied from memory.
func (c *Prices) Measure(one, two, split, global, denied Price) {
	c.Decision, c.Memory = one, denied
	c.Limit, c.Partition, c.Global = two.minus(one), split.minus(one), global.minus(one)
}

// Stored is what Redis held after a run, and in how many bytes.
type Stored struct {
	Bytes, Partitions, Units, Buckets float64
}

// Measure takes sizes from a run with many partitions of few units, one with few
// partitions of many units, and one with a global limit.
func (s *Sizes) Measure(wide, deep, global Stored) {
	// Two equations: bytes = partitions · Partition + units · Unit.
	d := wide.Partitions*deep.Units - deep.Partitions*wide.Units
	s.Partition = (wide.Bytes*deep.Units - deep.Bytes*wide.Units) / d
	s.Unit = (deep.Bytes*wide.Partitions - wide.Bytes*deep.Partitions) / d
	s.Total = max(0, global.Bytes-global.Partitions*s.Partition-global.Units*s.Unit) / global.Buckets
}
