package demo

import (
	"context"
	"strings"

	meshsync "github.com/regiond/regiond/sync"
)

// Bus is a region's bus, out of which a cut takes everything: silently, as a
// network does. Run must run for as long as somebody reads Messages.
type Bus struct {
	meshsync.Bus
	cuts   *Cuts
	region string
	out    chan meshsync.Message
}

// Bus puts the cuts between a region and its bus.
func (c *Cuts) Bus(region string, inner meshsync.Bus) *Bus {
	return &Bus{Bus: inner, cuts: c, region: region, out: make(chan meshsync.Message)}
}

// Publish hands a message over. A digest request names the region that is asked
// and not the one that asks, so a cut takes it here; from everything else who
// receives can tell the author, and takes it there.
func (b *Bus) Publish(subject string, data []byte, header ...meshsync.Field) error {
	if b.cuts.between(b.region, regionOf(subject)) {
		return nil
	}
	return b.Bus.Publish(subject, data, header...)
}

// Messages delivers what no cut takes. It is never closed.
func (b *Bus) Messages() <-chan meshsync.Message { return b.out }

// Run passes messages on until ctx ends. What waits inside is bounded by the bus
// behind this one.
func (b *Bus) Run(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case m := <-b.Bus.Messages():
			if b.cuts.between(b.region, regionOf(m.Subject)) {
				continue
			}
			select {
			case <-ctx.Done():
				return nil
			case b.out <- m:
			}
		}
	}
}

// regionOf is the last word of a subject: the author, or for a digest request the
// region that is asked.
func regionOf(subject string) string {
	return subject[strings.LastIndexByte(subject, '.')+1:]
}
