package sim

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/alicebob/miniredis/v2/server"
	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/regiond/regiond/quota"
	"github.com/regiond/regiond/region"
	"github.com/regiond/regiond/region/members"
	"github.com/regiond/regiond/region/state"
)

// TestDurable has processes of a region take turns at random, while data are lost, the clock
// steps and other servers take over: what the hash replies is what region.lua replies, word for word.
func TestDurable(t *testing.T) {
	t.Parallel()
	const seeds, turns = 3, 300
	for seed := range uint64(seeds) {
		var d durable
		redisServer := serverOf(t, &d.run)
		client := redis.NewClient(&redis.Options{
			Addr: redisServer.Addr(), MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}, Protocol: 2, DisableIdentity: true,
		})
		defer client.Close()
		dice := rand.New(rand.NewPCG(seed, 1))
		var now, stepped time.Duration
		us := func() int64 { return startUS + (now + stepped).Microseconds() }
		d.nowUS, d.now = us, func() time.Duration { return now }
		eval := func(ctx context.Context, script, key string, args ...any) (any, error) {
			redisServer.SetTime(time.UnixMicro(us()))
			want, err := client.Eval(ctx, script, []string{key}, args...).Result()
			if err != nil {
				return nil, err
			}
			got, err := d.eval(ctx, script, key, args...)
			if !reflect.DeepEqual(sorted(got), sorted(want)) {
				t.Fatalf("seed %d, at %v: for %q\nthe hash replies %q,\nthe script       %q", seed, now, args, got, want)
			}
			return got, err
		}
		var processes []*state.State
		revision := int64(0)
		for range turns {
			now += time.Duration(dice.Int64N(int64(2 * time.Second)))
			switch kind := dice.IntN(20); {
			case kind == 0:
				redisServer.FlushAll()
				d.forget()
			case kind == 1:
				stepped += time.Duration(dice.Int64N(int64(24*time.Minute))) - 12*time.Minute
			case kind < 4 && len(processes) < 3 || len(processes) == 0:
				born := now
				processes = append(processes, state.New(state.Options{
					Members: members.New(quota.Process{Region: "a", Instance: fmt.Sprint(len(processes)), Boot: us()}),
					Eval:    eval, Now: func() time.Duration { return now - born }, HostUS: func() int64 { return startUS + now.Microseconds() },
					Logger: slog.New(slog.DiscardHandler),
				}))
				revision += dice.Int64N(2)
				top := &region.Topology{Revision: revision, Regions: []region.Region{{Name: "a", Weight: revision + 1}, {Name: "b", Weight: 1}}}
				_ = processes[len(processes)-1].Adopt(t.Context(), top)
			case kind < 5:
				i := dice.IntN(len(processes))
				if dice.IntN(2) == 0 { // else it is killed
					processes[i].Leave()
				}
				processes = slices.Delete(processes, i, i+1)
			case kind == 5:
				processes[dice.IntN(len(processes))].Lose(us())
			case kind == 6:
				now += time.Duration(dice.Int64N(int64(10 * time.Second)))
				d.run++
			case kind == 7:
				_ = processes[dice.IntN(len(processes))].Reopen(t.Context()) // where nothing is lost it is refused
			default:
				processes[dice.IntN(len(processes))].Turn(t.Context())
			}
		}
		if d.epoch() == 0 {
			t.Errorf("seed %d: no process is left that has an epoch", seed)
		}
	}
}

// serverOf is a Redis with a run_id.
func serverOf(t *testing.T, run *int) *miniredis.Miniredis {
	s := miniredis.RunT(t)
	s.Server().SetPreHook(func(c *server.Peer, cmd string, _ ...string) bool {
		if cmd == "INFO" {
			c.WriteBulk(fmt.Sprintf("# Server\r\nrun_id:%d\r\n", *run))
		}
		return cmd == "INFO"
	})
	return s
}

// sorted is a reply with its entries in the order of their fields, which a hash has not.
func sorted(reply any) []any {
	words := reply.([]any)
	var entries [][2]any
	for i := 7; i+1 < len(words); i += 2 {
		entries = append(entries, [2]any{words[i], words[i+1]})
	}
	slices.SortFunc(entries, func(a, b [2]any) int {
		if a[0].(string) < b[0].(string) {
			return -1
		}
		return 1
	})
	all := slices.Clone(words[:7])
	for _, e := range entries {
		all = append(all, e[0], e[1])
	}
	return all
}
