package answer

import (
	"strconv"
	"strings"
	"time"

	"github.com/regiond/regiond/quota"
)

// kinds are what providers of language models have limits of. A limit of tokens that is named input… or output… is of these too.
var kinds = [...]struct {
	name string
	has  func(l *quota.Limit) bool
}{
	{"requests", func(l *quota.Limit) bool { return l.Counts != quota.CountsTokens && l.Algorithm != quota.Concurrent }},
	{"tokens", func(l *quota.Limit) bool { return l.Counts == quota.CountsTokens }},
	{"input-tokens", func(l *quota.Limit) bool { return l.Counts == quota.CountsTokens && strings.HasPrefix(l.Name, "input") }},
	{"output-tokens", func(l *quota.Limit) bool {
		return l.Counts == quota.CountsTokens && strings.HasPrefix(l.Name, "output")
	}},
}

// provider adds the fields of OpenAI, or of Anthropic, for each kind of limit that the decision has: of several of a kind those of the
// headline among them.
//
//	https://platform.openai.com/docs/guides/rate-limits, "Rate limits in headers"
//	https://docs.anthropic.com/en/api/rate-limits, "Response headers"
func (fs *Fields) provider(d *quota.Decision, in Input) {
	anthropic := in.Headers.Format == quota.Anthropic
	for i, kind := range kinds {
		own := quota.Decision{}
		for n := range d.Limits {
			if kind.has(d.Limits[n].Limit) {
				own.Limits = append(own.Limits, d.Limits[n])
			}
		}
		head := own.Headline()
		if head < 0 || i > 1 && !anthropic {
			continue
		}
		s := &own.Limits[head]
		seconds := waitSeconds(s, wait(s), in.Jitter)
		limit, left := string(appendInteger(nil, s.Limit.Units)), string(appendInteger(nil, s.Remaining))
		if anthropic {
			prefix := "anthropic-ratelimit-" + kind.name
			fs.Set(prefix+"-limit", limit)
			fs.Set(prefix+"-remaining", left)
			fs.Set(prefix+"-reset", time.Unix(epochSeconds(d, in.NowUS)+seconds, 0).UTC().Format(time.RFC3339))
			continue
		}
		fs.Set("x-ratelimit-limit-"+kind.name, limit)
		fs.Set("x-ratelimit-remaining-"+kind.name, left)
		fs.Set("x-ratelimit-reset-"+kind.name, durationText(wait(s), seconds))
	}
}

// durationText is a wait as OpenAI writes it, in seconds from one on: "6m0s", "1s", "120ms".
func durationText(d time.Duration, seconds int64) string {
	if d < time.Second {
		return strconv.FormatInt(ceil(d, time.Millisecond), 10) + "ms"
	}
	return (time.Duration(seconds) * time.Second).String()
}
