package limiter

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/regiond/regiond/limiter/memstore"
	"github.com/regiond/regiond/limiter/store"
	"github.com/regiond/regiond/quota"
)

// partlyAway is a store that fails for one tenant.
type partlyAway struct {
	*memstore.Store
	tenant string
}

func (s *partlyAway) Decide(ctx context.Context, calls []store.Call, verdicts []store.Verdict) {
	if strings.HasPrefix(calls[0].Keys[0], "rl:{"+s.tenant+"}") {
		store.Fail(verdicts, &store.Error{Reason: quota.ReasonRedisDown, Err: context.DeadlineExceeded})
		return
	}
	s.Store.Decide(ctx, calls, verdicts)
}

// While Redis is away for some and answers others, who was counted stays counted,
// however many others come: beyond the bound it is they who find no room, and are
// refused as long as they would have to be decided here.
func TestLocalKeepsThoseItHas(t *testing.T) {
	t.Parallel() // it measures no time
	for _, row := range []struct {
		name         string
		most, others int
		refused      bool // the newcomer
	}{
		{"as many as there is room for", 3_000 + 2, 3_000, false},
		{"ten times as many", 300, 3_000, true},
	} {
		t.Run(row.name, func(t *testing.T) {
			now := time.Unix(1_795_198_405, 0)
			l, err := New(Options{
				Store:  &partlyAway{memstore.New(memstore.Options{Now: func() int64 { return now.UnixMicro() }}), "away"},
				Logger: slog.New(slog.DiscardHandler), Now: func() time.Time { return now },
				Config: Config{
					Policies: []quota.Policy{{Name: "standard", Limits: []quota.Limit{{Name: "day", Units: 10, Window: 24 * time.Hour, By: []string{"user"}}}, EnforcePercent: -1}},
					Default:  &quota.Tenant{Policy: "standard"}, MaxUnknown: 1 << 20,
				},
			})
			if err != nil {
				t.Fatal(err)
			}
			l.local = memstore.New(memstore.Options{Now: l.localUS, Partitions: row.most, Coarse: true})
			check := func(tenant, user string) quota.Decision {
				d, err := l.Check(context.Background(), quota.Request{Tenant: tenant, Cost: 1, Dimensions: quota.Dimensions{{Name: "user", Value: user}}})
				if err != nil {
					t.Fatal(err)
				}
				return d
			}
			admitted := 0
			for round := range 3 {
				for check("away", "victim").Allowed {
					admitted++
				}
				for i := range row.others / 3 {
					if !check("well", fmt.Sprint(round, ".", i)).Allowed {
						t.Fatal("one of the others was denied")
					}
				}
				now = now.Add(time.Second)
			}
			if admitted != 10 {
				t.Errorf("a limit of 10 a day admitted %d in three seconds", admitted)
			}
			d := check("away", "newcomer")
			if d.Allowed == row.refused || row.refused && d.Basis != quota.BasisClosed {
				t.Errorf("a newcomer is allowed: %v, by %v", d.Allowed, d.Basis)
			}
			now = now.Add(49 * time.Hour) // all is gone
			if d := check("away", "newcomer"); !d.Allowed || d.Basis != quota.BasisLocal {
				t.Errorf("when there is room again, the newcomer is allowed: %v, by %v", d.Allowed, d.Basis)
			}
		})
	}
}
