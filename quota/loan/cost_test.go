package loan_test

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/regiond/regiond/quota/loan"
	"github.com/regiond/regiond/test/redisserver"
)

// TestBytesPerGrant adds up what a grant takes in a protobuf message, without what all messages have.
func TestBytesPerGrant(t *testing.T) {
	g := loan.Grant{ID: loan.ID{Epoch: 4_000_000_000, Stamp: 1_795_198_405_260_197}, Units: 100_000, New: true, Epoch: 4_000_000_000, Time: 1_795_198_405_260_197}
	var b []byte
	b = protowire.AppendFixed64(protowire.AppendTag(b, 1, protowire.Fixed64Type), 0x0123456789abcdef) // the partition, as a hash
	b = protowire.AppendVarint(protowire.AppendTag(b, 2, protowire.VarintType), 100)                  // the limit, by its place in the message
	b = protowire.AppendFixed32(protowire.AppendTag(b, 3, protowire.Fixed32Type), g.ID.Epoch)
	b = protowire.AppendVarint(protowire.AppendTag(b, 4, protowire.VarintType), uint64(g.ID.Stamp))
	b = protowire.AppendVarint(protowire.AppendTag(b, 5, protowire.VarintType), uint64(g.Units))
	b = protowire.AppendVarint(protowire.AppendTag(b, 6, protowire.VarintType), 1) // New
	b = protowire.AppendFixed32(protowire.AppendTag(b, 7, protowire.Fixed32Type), g.Epoch)
	b = protowire.AppendVarint(protowire.AppendTag(b, 8, protowire.VarintType), uint64(g.Time))
	b = protowire.AppendBytes(protowire.AppendTag(nil, 1, protowire.BytesType), b)
	t.Logf("%d bytes for a grant", len(b))
	if len(b) > 60 {
		t.Errorf("a grant takes %d bytes", len(b))
	}
}

// BenchmarkDecide measures, in Redis's own time, what reading the loans adds to a check of one global limit.
func BenchmarkDecide(b *testing.B) {
	client := redisserver.Start(b, redisserver.Options{}).Client()
	ctx := context.Background()
	var source string
	for _, file := range []string{"now.lua", "base.lua", "usage_counters.lua", "log.lua", "window_gcra.lua", "decide.lua"} {
		s, err := os.ReadFile("../../limiter/redisstore/lua/" + file)
		if err != nil {
			b.Fatal(err)
		}
		source += string(s) + "\n"
	}
	const checks = 20
	_, delta, _ := strings.Cut(loan.Script, "local function loans_delta()")
	delta, _, _ = strings.Cut(delta, "\nend\n")
	delta = "local epoch, sub = '4000000000', string.sub\nlocal function loans_delta(key)" + delta + "\nend\n"
	delta = strings.Replace(delta, "save_loans(load_loans())", "0", 1)
	const is = "ceilings[#ceilings + 1] = l.C or tonumber(ARGV[p])"
	reads := strings.Replace(source, is, fmt.Sprintf("ceilings[#ceilings + 1] = l.C or min(tonumber(ARGV[p]), 900 + loans_delta(KEYS[%d + #replies]))", 2*checks), 1)
	if reads == source {
		b.Fatal("decide.lua reads its ceilings otherwise")
	}
	reads = strings.Replace(reads, "local IDEMPOTENCY_US", delta+"local IDEMPOTENCY_US", 1)
	type variant struct {
		name   string
		script *redis.Script
		keys   []string
		args   []any
		us     float64
	}
	client.FlushAll(ctx)
	variants := []*variant{{name: "plain", script: redis.NewScript(source)}, {name: "unlent", script: redis.NewScript(reads)}, {name: "lent", script: redis.NewScript(reads)}}
	for _, v := range variants {
		for i := range checks {
			name := fmt.Sprintf("%s=%d", v.name, i)
			v.keys = append(v.keys, "rl:{acme}:l:standard:"+name, "rl:{acme}:t.hour.30000000:standard:"+name)
		}
		v.args = []any{"n.1", 1, 1, "l", 900, 120000, 1, 60_000_000, "-", 900, 30_000_000, 3}
		for i := range checks {
			key := fmt.Sprintf("rl:{acme}:b.hour:standard:%s=%d", v.name, i)
			v.keys, v.args = append(v.keys, key), append(v.args, 1, "c", 1, "", 900)
			if v.name == "lent" {
				client.HSet(ctx, key, "c", "4000000000 9000000000000000 -10 0 0", "lb 4000000000 1795198405260197", "30 0 9000000000000000", "hc 4000000000 1795198405260198", "20 0 9000000000000000")
			}
		}
	}
	calls := 0
	for b.Loop() {
		for _, v := range variants { // in turn, since a machine has slower and faster seconds
			client.ConfigResetStat(ctx)
			for range 20 {
				if r, err := v.script.Run(ctx, client, v.keys, v.args...).Text(); err != nil || strings.Count(r, "\na ")+strings.Count(r, "\nd ") != checks {
					b.Fatal(r, err)
				}
			}
			info, err := client.Info(ctx, "commandstats").Result()
			if err != nil {
				b.Fatal(err)
			}
			_, after, _ := strings.Cut(info, "cmdstat_evalsha:calls=")
			_, after, _ = strings.Cut(after, "usec_per_call=")
			us, _, _ := strings.Cut(after, ",")
			f, err := strconv.ParseFloat(us, 64)
			if err != nil {
				b.Fatal(err)
			}
			if calls > 0 { // the first loads the script
				v.us += f / checks
			}
		}
		calls++
	}
	for _, v := range variants {
		b.ReportMetric(v.us/float64(max(1, calls-1)), "µs/"+v.name)
	}
}
