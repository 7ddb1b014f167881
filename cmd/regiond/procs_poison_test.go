//go:build unix

package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/regiond/regiond/quota"
	meshsync "github.com/regiond/regiond/sync"
	"github.com/regiond/regiond/sync/wire"
)

// testProcsPoison: somebody with access to NATS publishes what is no message of
// ours. Nothing changes but the counts of what was refused.
func testProcsPoison(t *testing.T, binary string) {
	g := newGlobe(t, binary, true)
	stop := g.load(t)
	pause(time.Second)
	stop()
	want := g.truth(t)
	g.settles(t, "the load ended", time.Now(), want)

	nc, err := nats.Connect(g.nats.url())
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	before := g.refused(t)
	sent := map[string]int{}
	for _, p := range procsPoisons(t) {
		if err := nc.Publish(p.subject, p.data); err != nil {
			t.Fatalf("%s, %d bytes: %v", p.reason, len(p.data), err)
		}
		sent[p.reason]++
	}
	if err := nc.FlushTimeout(10 * time.Second); err != nil {
		t.Fatal(err)
	}
	for _, p := range g.regions {
		eventually(t, func() error {
			now := p.refused(t)
			for reason, n := range sent {
				if got := now[reason] - before[p.name][reason]; got != n {
					return fmt.Errorf("%s: %d messages were refused as %s, %d were sent: %v", p.name, got, reason, n, now)
				}
			}
			return nil
		})
	}
	t.Logf("refused everywhere: %v", sent)
	all := questions(want, g.regions)
	if wrong := g.ask(all, want); len(wrong) > 0 {
		t.Errorf("%d of %d estimates have changed", len(wrong), len(all))
	}
	g.global(t, "the poison", time.Now())
	g.left(t, want)
	for _, p := range g.regions {
		if strings.Contains(p.first.log.String(), "panic") {
			t.Errorf("%s panicked", p.name)
		}
		p.first.admin.get(t, "/readyz").is(t, http.StatusOK)
	}
}

// procsPoison is a message that changes nothing, and why.
type procsPoison struct {
	subject string
	data    []byte
	reason  string
}

func procsPoisons(t *testing.T) []procsPoison {
	const usage, beat = meshsync.SubjectUsage + "eu-west", meshsync.SubjectHeartbeat + "eu-west"
	nowUS := time.Now().UnixMicro()
	// eu-west has no process of that name: what is taken would be news.
	forged := func(region string, entries int) []byte {
		u := wire.Usage{From: quota.Process{Region: region, Instance: "forged", Boot: 1}, Seq: 1, TimeUS: nowUS}
		month := (720 * time.Hour).Microseconds()
		group := wire.Group{Limit: "standard.monthly", WindowUS: month, BucketUS: month, Bucket: nowUS / month}
		group.IDs, group.Generations, group.Units = make([]uint64, entries), make([]int64, entries), make([]int64, entries)
		for i := range entries {
			group.Generations[i], group.Units[i] = nowUS, 7
		}
		u.Groups = []wire.Group{group}
		return wire.AppendUsage(nil, &u)
	}
	version := forged("eu-west", 1)
	version[1] = 99 // the value of the first field
	poisons := []procsPoison{
		{usage, forged("us-east", 1), "author"},
		{usage, version, "version"},
		{usage, forged("eu-west", 1_000_000), "size"},
		{meshsync.SubjectUsage + "mars", forged("mars", 1), "stranger"},
		{beat, forged("eu-west", 1), "malformed"},
		{usage, nil, "malformed"},
	}
	random := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		data := make([]byte, 1+random.IntN(300))
		for i := range data {
			data[i] = byte(random.Uint32())
		}
		data[0] |= 7 // a field of no type: whatever follows, it is not ours
		poisons = append(poisons, procsPoison{usage, data, "malformed"}, procsPoison{beat, data, "malformed"})
	}
	for _, p := range poisons {
		if len(p.data) > 1<<20 {
			t.Fatalf("a message of %d bytes would not get through NATS", len(p.data))
		}
	}
	return poisons
}

// refused is what each region has counted, by reason.
func (g *globe) refused(t *testing.T) map[string]map[string]int {
	t.Helper()
	all := map[string]map[string]int{}
	for _, p := range g.regions {
		all[p.name] = p.refused(t)
	}
	return all
}

func (p *place) refused(t *testing.T) map[string]int {
	t.Helper()
	a, err := p.first.admin.try(context.Background(), http.MethodGet, "/metrics", "")
	if err != nil {
		t.Fatal(err)
	}
	counts := map[string]int{}
	for line := range strings.Lines(a.body) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), "} ")
		_, reason, ok := strings.Cut(name, `reason="`)
		reason, _, _ = strings.Cut(reason, `"`)
		if n, err := strconv.ParseFloat(value, 64); ok && err == nil && strings.HasPrefix(name, "regiond_sync_refused_total{") {
			counts[reason] += int(n)
		}
	}
	return counts
}
