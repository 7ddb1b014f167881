package limiter

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/regiond/regiond/quota"
)

// forgetful is a server, behind a client's hook, that answers each tenant's script call as
// the test says, the first time; later ones and all others are admitted.
type forgetful struct {
	first map[string]error // by tenant
	load  error            // of SCRIPT LOAD
	sent  []string         // tenants, in the order that their calls came
}

func (f *forgetful) DialHook(redis.DialHook) redis.DialHook {
	return func(context.Context, string, string) (net.Conn, error) {
		return nil, errors.New("there is no network here")
	}
}

func (f *forgetful) ProcessHook(redis.ProcessHook) redis.ProcessHook {
	return func(_ context.Context, cmd redis.Cmder) error { return f.load }
}

func (f *forgetful) ProcessPipelineHook(redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(_ context.Context, cmds []redis.Cmder) error {
		for _, cmd := range cmds {
			args := cmd.Args()
			tenant := hashTag(args[3].(string))
			again := slices.Contains(f.sent, tenant)
			f.sent = append(f.sent, tenant)
			if err := f.first[tenant]; err != nil && !again {
				cmd.SetErr(err)
				continue
			}
			cmd.(onceCmd).SetVal(fmt.Sprintf("%v 1795198405260197\na 9 0 60000000", args[3+args[2].(int)]))
		}
		return nil
	}
}

// When a server has forgotten the script, those calls are sent again that it refused for
// that, and no others: of one whose reply was lost nobody knows that it was not charged.
func TestClusterSendsAgainWhatWasNotExecuted(t *testing.T) {
	const known, unknown, lost = "known", "unknown", "lost"
	noscript := redisReply("NOSCRIPT No matching script")
	busy := redisReply("BUSY Redis is busy running a script")
	for _, row := range []struct {
		what  string
		first map[string]error
		load  error
		sent  []string
		want  map[string]error // by tenant; nil for admitted
	}{
		{"all know it", nil, nil, []string{known, unknown, lost}, nil},
		{
			"one does not",
			map[string]error{unknown: noscript},
			nil,
			[]string{known, unknown, lost, unknown},
			nil,
		},
		{
			"one does not, and one reply is lost",
			map[string]error{unknown: noscript, lost: io.EOF},
			nil,
			[]string{known, unknown, lost, unknown},
			map[string]error{lost: io.EOF},
		},
		{
			"one does not, and will not",
			map[string]error{unknown: noscript, lost: io.EOF},
			busy,
			[]string{known, unknown, lost},
			map[string]error{unknown: busy, lost: io.EOF},
		},
	} {
		t.Run(row.what, func(t *testing.T) {
			server := &forgetful{first: row.first, load: row.load}
			o := RedisOptions{Mode: quota.RedisCluster, Addrs: []string{"127.0.0.1:1"}, Budget: time.Second, Logger: slog.New(slog.DiscardHandler)}
			m := testMetrics(t)
			c := newCluster(o, newNodes(o, make(chan struct{}, 1), &m.store))
			defer c.close()
			client := redis.NewClient(&redis.Options{Addr: o.Addrs[0]})
			defer client.Close()
			client.AddHook(server)
			n := c.node(client)

			tenants := []string{known, unknown, lost}
			calls, verdicts := make([]Call, len(tenants)), make([]Verdict, len(tenants))
			shape := NewKeyPlan([]*quota.Limit{{Name: "minute", Units: 10, Window: time.Minute}})
			for i, tenant := range tenants {
				calls[i] = callOf(shape, tenant, 1)
			}
			if err := c.carry(context.Background(), n, calls, verdicts); err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(server.sent, row.sent) {
				t.Errorf("sent %v, want %v", server.sent, row.sent)
			}
			for i, tenant := range tenants {
				v, want := verdicts[i], row.want[tenant]
				if !errors.Is(v.Err, want) || want == nil && v.Outcome != admitted {
					t.Errorf("%s: %+v, want %v", tenant, v, want)
				}
			}
		})
	}
}
