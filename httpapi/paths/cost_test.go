package paths_test

import (
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/regiond/regiond/httpapi/paths"
)

// costlyPieces are what paths are made of that servers read in many ways.
var costlyPieces = []string{
	"//", "/..", "/.", ";x", "%2f", "%252f", "%25", "%2e%2e", ". ", "%3f", "%20", "a", "/a;b=c", "%3b", "%2525", "/", "%E3%81%82", "%41",
	"aaaaaaaaaaaaaaaa", "%252525",
}

// costlyPath returns a path of up to 8 KB that may cost much: a beginning, and something repeated.
func costlyPath(r *rand.Rand) string {
	some := func(n int) (s string) {
		for range n {
			s += costlyPieces[r.IntN(len(costlyPieces))]
		}
		return s
	}
	head, unit, tail := "/"+some(r.IntN(9)), some(1+r.IntN(6)), some(r.IntN(5))
	size := []int{50, 100, 200, 400, 800, 1200, 1900, 3000, 5000, 8000}[r.IntN(10)]
	return head + strings.Repeat(unit, max(0, size-len(head)-len(tail))/len(unit)) + tail
}

// insert puts a piece somewhere into a path.
func insert(r *rand.Rand, path string) string {
	i := 1 + r.IntN(len(path))
	return path[:i] + costlyPieces[r.IntN(len(costlyPieces))] + path[i:]
}

// The work for a path is bounded in bytes.
func TestWorkForAPath(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 3))
	all := []string{
		"/.%20" + strings.Repeat("%25///.%20", 189), "/a;b=c/..%2e%2e;x/.//" + strings.Repeat("/.;x.%20//%20", 170),
		"/" + strings.Repeat("a%2F..%252f;x/.//", 900),
	}
	for range 10_000 {
		all = append(all, costlyPath(r))
	}
	refused, most := 0, 0
	for i, path := range all {
		scanned, copied, err := paths.Work(path)
		if scanned > 256<<10+len(path) || copied > 32<<10+len(path) {
			t.Errorf("%d bytes were scanned and %d copied for %q", scanned, copied, path)
		}
		if i < 3 && (err == nil || scanned+copied > 0) {
			t.Errorf("%.40q…: %d bytes scanned, %v; want it refused at once", path, scanned, err)
		}
		if err != nil {
			refused++
		}
		most = max(most, copied)
	}
	if most < 32<<10 || refused == 0 || refused == len(all) {
		t.Errorf("%d of %d refused, at most %d bytes copied: these paths are no test", refused, len(all), most)
	}
}

// Honest paths may be long: letters of other alphabets do not make one suspect.
func TestLongHonestPathsPass(t *testing.T) {
	f := routes()
	for _, unit := range []string{"/%E6%9D%B1%E4%BA%AC", "/%D9%85%D8%B1%D8%AD%D8%A8%D8%A7", "/%25E6%259D%25B1", "/api/v1", "/hello%20world", "/größe"} {
		path := strings.Repeat(unit, 8000/len(unit))
		if got, err := paths.RouteName(f, "GET", path); err != nil || got != "other" {
			t.Errorf("%.40s… is %s: %v", path, got, err)
		}
	}
}

// BenchmarkWorstPath searches PATHS random paths (20,000 by default), and what comes of changing the worst, for what costs most.
// An interruption is not the path's cost, so the least of many measurements counts: 50 to find the worst, and 2,000 of each of those.
func BenchmarkWorstPath(b *testing.B) {
	n, err := strconv.Atoi(os.Getenv("PATHS"))
	if err != nil {
		n = 20_000
	}
	type measured struct {
		took time.Duration
		path string
	}
	f, r := routes(), rand.New(rand.NewPCG(1, 2))
	least := func(path string, times int) time.Duration {
		best := time.Hour
		for range times {
			start := time.Now()
			_, _ = paths.RouteName(f, "POST", path)
			best = min(best, time.Since(start))
		}
		return best
	}
	var worst []measured
	for b.Loop() {
		worst = worst[:0]
		for i := range n {
			path := costlyPath(r)
			if i%2 == 1 && len(worst) > 0 {
				path = insert(r, worst[r.IntN(len(worst))].path)
			}
			if took := least(path, 1); len(path) <= 8<<10 && (len(worst) < 20 || took > worst[len(worst)-1].took) {
				worst = append(worst, measured{least(path, 50), path})
				slices.SortFunc(worst, func(a, b measured) int { return int(b.took - a.took) })
				worst = worst[:min(20, len(worst))]
			}
		}
	}
	for i := range worst {
		worst[i].took = least(worst[i].path, 2000)
	}
	slices.SortFunc(worst, func(a, b measured) int { return int(b.took - a.took) })
	b.ReportMetric(float64(worst[0].took.Nanoseconds())/1e3, "worst-µs")
	b.Logf("%d bytes: %.200q", len(worst[0].path), worst[0].path)
}
