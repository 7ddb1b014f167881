package sim

import (
	_ "embed"
	"fmt"
	"strconv"
	"strings"
	"time"
)

//go:embed testdata/corpus.txt
var corpus string

// Corpus is the plans whose worlds have once shown a mistake, or reach what random ones reach seldom.
func Corpus() ([]Plan, error) {
	var plans []Plan
	for i, line := range strings.Split(strings.TrimSpace(corpus), "\n") {
		if strings.HasPrefix(line, "#") {
			continue
		}
		words := strings.Fields(line)
		if len(words) < 4 {
			return nil, fmt.Errorf("corpus.txt: line %d is not a kind, a seed, how long the world lasts, and a reason: %q", i+1, line)
		}
		seed, err := strconv.ParseUint(words[1], 10, 64)
		if err != nil {
			return nil, fmt.Errorf("corpus.txt: line %d: %w", i+1, err)
		}
		lasts, err := time.ParseDuration(words[2])
		if err != nil {
			return nil, fmt.Errorf("corpus.txt: line %d: %w", i+1, err)
		}
		p := Plan{Strict: words[0] != "estimated", Seed: seed, Lasts: lasts}
		if p.Strict && words[0] != "strict" {
			p.Only = words[0]
		}
		plans = append(plans, p)
	}
	return plans, nil
}
