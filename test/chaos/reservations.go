//go:build linux

package chaos

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"sync"
	"time"

	"github.com/regiond/regiond/test/chaos/judge"
)

const (
	heldClass   = "held"
	heldTenants = 4
	heldTTL     = 2 * time.Second // the most that one lasts
	heldHolders = 40              // per region; each has one reservation at a time
)

// Holders reserve and settle tokens in all regions until they are stopped: some crash, some settle twice at once, some in another region,
// and who gets no answer to a settle asks again.
type Holders struct {
	world  *World
	cancel context.CancelFunc
	all    sync.WaitGroup

	mu       sync.Mutex
	ended    []judge.Reservation
	objects  []string
	pending  int // answers that a settle is charged later
	replayed int
}

// Hold starts holders.
func (w *World) Hold(seed uint64) *Holders {
	ctx, cancel := context.WithCancel(context.Background())
	h := &Holders{world: w, cancel: cancel}
	for i := range heldHolders * len(w.Regions) {
		h.all.Go(func() {
			random := rand.New(rand.NewPCG(seed, uint64(i)))
			for ctx.Err() == nil {
				h.once(ctx, i%len(w.Regions), random)
			}
		})
	}
	return h
}

// End stops them and returns what they did.
func (h *Holders) End() (all []judge.Reservation, objects []string) {
	h.cancel()
	h.all.Wait()
	return h.ended, h.objects
}

// Seen is how many settles were pending, and how many had been charged before.
func (h *Holders) Seen() (pending, replayed int) { return h.pending, h.replayed }

func (h *Holders) object(format string, args ...any) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.objects = append(h.objects, fmt.Sprintf("reservations: "+format, args...))
}

// once is one reservation from its reserve to its end.
func (h *Holders) once(ctx context.Context, region int, random *rand.Rand) {
	w := h.world
	at := w.Regions[region]
	r := judge.Reservation{
		Region: at.Name, Tenant: fmt.Sprintf("%s-%02d", heldClass, random.IntN(heldTenants)),
		Amount: 1 + random.Int64N(100), TTL: time.Duration(50+random.IntN(1950)) * time.Millisecond,
	}
	r.Reserved.From = w.History.Now()
	status, body, err := at.target.Regiond.Do("POST", "/v1/reserve",
		fmt.Sprintf(`{"tenant":%q,"amount":%d,"ttl_ms":%d}`, r.Tenant, r.Amount, r.TTL.Milliseconds()))
	r.Reserved.To = w.History.Now()
	var answer struct {
		Basis       string
		Reservation struct{ ID string }
	}
	if err == nil {
		err = json.Unmarshal(body, &answer)
	}
	if err != nil || answer.Reservation.ID == "" {
		if err == nil && status != http.StatusTooManyRequests && status != http.StatusServiceUnavailable {
			h.object("a reserve in %s has status %d: %s", r.Region, status, body)
		}
		pause(ctx, time.Duration(50+random.IntN(100))*time.Millisecond)
		return
	}
	if answer.Basis == "local" { // held in memory, so the settle frees nothing in Redis
		r.Amount = 0
	}
	fate := random.IntN(8)
	if pause(ctx, time.Duration(random.Int64N(int64(r.TTL)))); fate > 0 { // 0: it crashes
		if fate == 1 { // its gateway goes to another region
			region = (region + 1) % len(w.Regions)
		}
		actual := random.Int64N(110)
		settle := func() *judge.Settle { return h.settle(w.Regions[region], answer.Reservation.ID, actual) }
		twice := make(chan *judge.Settle, 1)
		if fate == 2 {
			go func() { twice <- settle() }()
		}
		r.Settled = settle()
		if fate == 2 {
			if a, b := r.Settled, <-twice; a != nil && b != nil {
				if a.Charged != b.Charged || a.Overrun != b.Overrun || a.Released != b.Released {
					h.object("settled twice in %s: %+v and %+v", a.Region, *a, *b)
				}
				a.From, a.To = min(a.From, b.From), max(a.To, b.To)
			}
		}
		if r.Settled != nil && answer.Basis == "local" {
			r.Settled.Released = false
		}
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.ended = append(h.ended, r)
}

// settleWithin is for how long a settle without an answer, or one that is pending, is repeated.
const settleWithin = 20 * time.Second

func (h *Holders) settle(at *Region, id string, actual int64) *judge.Settle {
	now := h.world.History.Now
	s := &judge.Settle{Region: at.Name, Span: judge.Span{From: now()}}
	for {
		status, body, err := at.target.Regiond.Do("POST", "/v1/settle", fmt.Sprintf(`{"reservation":%q,"actual":%d}`, id, actual))
		s.To = now()
		var answer struct {
			Charged, Overrun            int64
			Released, Replayed, Pending bool
		}
		if err == nil && status == http.StatusOK {
			err = json.Unmarshal(body, &answer)
		}
		h.mu.Lock()
		if answer.Pending {
			h.pending++
		} else if answer.Replayed {
			h.replayed++
		}
		h.mu.Unlock()
		switch {
		case err == nil && status == http.StatusOK && !answer.Pending:
			s.Charged, s.Overrun, s.Released = answer.Charged, answer.Overrun, answer.Released
			return s
		case err == nil && status != http.StatusOK && status != http.StatusServiceUnavailable:
			h.object("a settle in %s has status %d: %s", at.Name, status, body)
			return nil
		case s.To-s.From > settleWithin:
			h.object("a settle in %s was not charged within %v: status %d, %s, %v", at.Name, settleWithin, status, body, err)
			return nil
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// Free insists that soon after the longest ttl nothing is held any more.
func (h *Holders) Free() (objects []string) {
	w := h.world
	_, err := w.Await(heldTTL+time.Second, "nothing is held", func() error {
		for _, r := range w.Regions {
			for i := range heldTenants {
				tenant := fmt.Sprintf("%s-%02d", heldClass, i)
				status, body, err := r.target.Regiond.Do("POST", "/v1/reserve", fmt.Sprintf(`{"tenant":%q,"amount":0}`, tenant))
				var look struct{ Limits []struct{ Held int64 } }
				if err == nil {
					err = json.Unmarshal(body, &look)
				}
				if err != nil || len(look.Limits) != 1 || look.Limits[0].Held != 0 {
					return fmt.Errorf("%s of %s: status %d, %s, %w", tenant, r.Name, status, body, err)
				}
			}
		}
		return nil
	})
	if err != nil {
		objects = append(objects, "reservations: "+err.Error())
	}
	return objects
}
