package sizing_test

import (
	"flag"
	"fmt"
	"os"
	"regexp"
	"runtime"
	"strings"
	"testing"
	"text/tabwriter"
	"time"

	"github.com/regiond/regiond/test/sizing"
)

var (
	atRate  = flag.Float64("at-rate", 2500, "decisions per second that the benchmark sizes for")
	forLong = flag.Duration("for-long", 20*time.Second, "how long the run is that confirms")
)

// calibration is how long each run lasts that a price is taken from.
const calibration = 4 * time.Second

// Limits so wide that nothing is denied, and one so narrow that nearly all is.
const (
	wide   = "name: minute, units: 90000, per: 1m"
	longer = "name: hour, units: 90000, per: 1h"
	byUser = "name: per-user, units: 90000, per: 1m, by: [user]"
	whole  = "name: minute, units: 90000, per: 1m, scope: global"
	narrow = "name: hour, units: 1, per: 1h"
	some   = "name: minute, units: 120, per: 1m, scope: global"
)

// BenchmarkSizing takes the prices of this machine from short runs, predicts what
// another plan costs, carries that one out, and prints both. It fails at no figure:
// whoever reads it judges. Run it with -benchtime 1x; it takes three minutes.
func BenchmarkSizing(b *testing.B) {
	binary := built(b)
	for b.Loop() {
		describe(b, binary)
		c := calibrate(b, binary)
		rates(b, binary)
		confirm(b, binary, c)
	}
}

// describe says what machine this is.
func describe(b *testing.B, binary string) {
	s := newStage(b, binary, []string{wide})
	defer s.end()
	info, err := s.redis.Client().Info(b.Context(), "server").Result()
	if err != nil {
		b.Fatal(err)
	}
	version := regexp.MustCompile(`redis_version:(\S+)`).FindStringSubmatch(info)
	fmt.Printf("\n%s; %d processors, %s; Linux %s; Redis %s; %s; load average %s\n\n",
		time.Now().UTC().Format("2006-01-02"), runtime.NumCPU(), ofProc("/proc/cpuinfo", `model name\s*: (.*)`),
		ofProc("/proc/sys/kernel/osrelease", `(.*)`), version[1], runtime.Version(), ofProc("/proc/loadavg", `(\S+ \S+ \S+)`))
}

func ofProc(file, pattern string) string {
	text, err := os.ReadFile(file)
	if err != nil {
		return "unknown"
	}
	if m := regexp.MustCompile(pattern).FindSubmatch(text); m != nil {
		return string(m[1])
	}
	return "unknown"
}

// calibrated is what the short runs came to.
type calibrated struct {
	prices sizing.Prices
	sizes  sizing.Sizes
}

// calibrate runs what prices are taken from, twice and in turns. Of the two it takes the
// smaller figure, since what else the machine does adds, among those that answered
// everything: a machine that is too busy bundles more calls, which makes each cheaper.
func calibrate(b *testing.B, binary string) *calibrated {
	const many, few = 10_000, 50
	plans := []plan{
		{name: "one limit", tenants: many, limits: []string{wide}},
		{name: "two limits", tenants: many, limits: []string{wide, longer}},
		{name: "two partitions", tenants: many, limits: []string{wide, byUser}},
		{name: "a global limit", tenants: many, limits: []string{whole}},
		{name: "remembered denials", tenants: few, limits: []string{narrow}},
		{name: "few tenants", tenants: few, limits: []string{wide}},
	}
	runs, stored := make([]*measured, len(plans)), make([]sizing.Stored, len(plans))
	for range 2 {
		for i, p := range plans {
			p.rate, p.long = *atRate, calibration
			m := p.run(b, binary)
			stored[i] = sizing.Stored{Bytes: float64(m.memory), Partitions: float64(m.used), Units: float64(m.units()), Buckets: float64(m.totals)}
			if runs[i] == nil || m.better(runs[i]) {
				runs[i] = m
			}
		}
	}
	c := &calibrated{}
	c.prices.Measure(runs[0].price(), runs[1].price(), runs[2].price(), runs[3].price(), runs[4].price())
	c.sizes.Measure(stored[0], stored[5], stored[3])
	t := table("µs of processor time per decision, at "+fmt.Sprint(*atRate)+"/s", "regiond", "Redis")
	for _, row := range []struct {
		what string
		p    sizing.Price
	}{
		{"one regional limit, asked of Redis", c.prices.Decision},
		{"  each further limit of the same partition", c.prices.Limit},
		{"  each further partition", c.prices.Partition},
		{"  each partition of a global limit", c.prices.Global},
		{"a denial that is remembered", c.prices.Memory},
	} {
		fmt.Fprintf(t, "%s\t%.1f\t%.1f\n", row.what, row.p.Regiond, row.p.Redis)
	}
	flush(t)
	t = table("bytes in Redis", "", "")
	fmt.Fprintf(t, "a partition that was used lately\t%.0f\na unit that its log holds\t%.1f\na usage total, per bucket\t%.0f\n", c.sizes.Partition, c.sizes.Unit, c.sizes.Total)
	flush(t)
	return c
}

// rates shows how the price of a decision changes with the rate, and with how many
// tenants there are.
func rates(b *testing.B, binary string) {
	t := table("decisions/s, tenants", "regiond µs", "Redis µs", "regiond MB", "p50 ms", "p99 ms", "late p99")
	for _, p := range []plan{
		{rate: *atRate / 10, tenants: 10_000},
		{rate: *atRate / 2, tenants: 10_000},
		{rate: *atRate, tenants: 100},
		{rate: *atRate, tenants: 10_000},
		{rate: *atRate, tenants: 200_000},
	} {
		p.name, p.limits, p.long = fmt.Sprintf("%v, %d", p.rate, p.tenants), []string{wide}, calibration
		m := p.run(b, binary)
		r := m.result
		fmt.Fprintf(t, "%s\t%.1f\t%.1f\t%.0f\t%.2f\t%.2f\t%.2f\n", p.name, m.regiond, m.redis, float64(m.resident)/1e6, r.Latency.P50, r.Latency.P99, r.Late.P99)
	}
	flush(t)
}

// confirm predicts a plan that no price was taken from, and carries it out: two
// partitions, one of them global, uneven tenants, some of them over their limit.
func confirm(b *testing.B, binary string, c *calibrated) {
	p := plan{name: "confirming", limits: []string{some, byUser, longer}, rate: *atRate, tenants: 2000, zipf: 1, long: *forLong}
	m := p.run(b, binary)
	need := c.prices.Predict(&c.sizes, &sizing.Plan{
		Rate: *atRate, Remembered: m.remembered(), Limits: 3, Partitions: 2, Globals: 1,
		Live: 2 * float64(m.used), Units: 2 * float64(m.units()), Buckets: float64(m.totals),
	})
	t := table(fmt.Sprintf("%v/s for %v, 2,000 tenants (zipf 1), 3 limits in 2 partitions, one global, %.0f %% remembered denials",
		*atRate, p.long, 100*m.remembered()), "predicted", "measured", "measured ÷ predicted")
	for _, row := range []struct {
		what                string
		predicted, measured float64
	}{
		{"processors for regiond", need.Cores.Regiond, m.regiond * *atRate / 1e6},
		{"processors for Redis", need.Cores.Redis, m.redis * *atRate / 1e6},
		{"MB in Redis", need.RedisMemory / 1e6, float64(m.memory) / 1e6},
	} {
		fmt.Fprintf(t, "%s\t%.3f\t%.3f\t%.2f\n", row.what, row.predicted, row.measured, row.measured/row.predicted)
	}
	flush(t)
	m.result.Print(os.Stdout)
}

func table(columns ...string) *tabwriter.Writer {
	t := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, strings.Join(columns, "\t"))
	return t
}

func flush(t *tabwriter.Writer) {
	_ = t.Flush() // it is standard output
	fmt.Println()
}
