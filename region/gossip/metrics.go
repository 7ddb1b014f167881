package gossip

import (
	"time"

	"go.opentelemetry.io/otel/metric"

	"github.com/regiond/regiond/internal/base/instruments"
	"github.com/regiond/regiond/region/members"
)

// metrics are the package's counters; the gauges read the Gossip. docs/observe.md describes them.
type metrics struct {
	refused, rejoins *instruments.Counter
}

func newMetrics(meter metric.Meter, g *Gossip) (*metrics, error) {
	i := instruments.On(meter)
	i.Gauge("regiond.gossip.members", "{process}", "Processes known by gossip, this one included, by state.",
		func(observe instruments.Observe) {
			counts := map[members.Word]float64{members.Alive: 0, members.Dead: 0}
			for _, m := range g.Members() {
				counts[m.Gossip.State]++
			}
			for state, n := range counts {
				observe(n, "state", string(state))
			}
		})
	i.Gauge("regiond.gossip.health", "{point}", "How late this process is with its own probes: 0 is healthy, 7 the worst.",
		func(observe instruments.Observe) {
			if ml := g.list.Load(); ml != nil {
				observe(float64(ml.GetHealthScore()))
			}
		})
	i.Gauge("regiond.config.drift", "s",
		"How long the configurations of the processes that are alive have differed; 0 while they agree.",
		func(observe instruments.Observe) {
			age := 0.0
			if since, _, ok := g.Drift(); ok {
				age = time.Since(since).Seconds()
			}
			observe(age)
		})
	m := &metrics{
		refused: i.CounterBy("regiond.gossip.refused", "{message}",
			"Messages and streams that were refused, by reason.", "reason",
			"label", "key", // of another deployment
			"size", "bytes", "streams", "message", // more than a deployment sends, or something else
			"region", "metadata", "full", // a member that does not belong here
		),
		rejoins: i.CounterBy("regiond.gossip.rejoins", "{call}", "Calls to seeds and dead members, by result.",
			"result", "joined", "failed", "unresolved"),
	}
	return m, i.Err()
}
