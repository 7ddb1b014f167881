package middleware

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"
)

// Reservation holds units for work whose cost is known only at its end, such as a streamed completion. It is extended by
// itself until it is settled or the context of Reserve ends. Its methods are safe for concurrent use.
type Reservation struct {
	// Decision is regiond's. Where it does not allow, nothing is held. With Away nothing is held either, and Settle charges nothing.
	Decision
	// Amount is what is held.
	Amount int64

	client *Client
	ctx    context.Context //nolint:containedctx // extensions end with that of Reserve
	id     string
	lasts  time.Duration

	mu      sync.Mutex
	settled bool        // guarded by mu
	extends *time.Timer // guarded by mu; nil where nothing is held
}

// Settlement is what a reservation was settled with.
type Settlement struct {
	// Charged is what was used, and Overrun how much of it is above what was held.
	Charged int64 `json:"charged"`
	Overrun int64 `json:"overrun"`
	// Released is whether the units were held until now.
	Released bool `json:"released"`
	// Pending is whether regiond charges it later, since its Redis is away.
	Pending bool `json:"pending"`
	// Replayed is whether it had been settled before; the rest is as it was then.
	Replayed bool `json:"replayed"`
}

// Reserve holds an amount for the tenant of a check, whose Cost is not used. The caller settles what was used, and cancels what it
// does not settle, also when it panics:
//
//	r, err := client.Reserve(ctx, middleware.Check{Tenant: "acme"}, 4000)
//	if err != nil || !r.Allowed {
//		return …
//	}
//	defer r.Cancel()
//	used := … // serve
//	_, err = r.Settle(ctx, used)
//
// Errors and OnAway are as those of Client.Check.
func (c *Client) Reserve(ctx context.Context, check Check, amount int64) (*Reservation, error) {
	check.Cost = 0
	body := struct {
		Check
		Amount int64 `json:"amount"`
	}{check, amount}
	d, err := c.decide(ctx, "/v1/reserve", body, &check)
	if c.options.Observe != nil {
		c.options.Observe(ctx, check, d, err)
	}
	r := &Reservation{Decision: d, client: c, ctx: ctx}
	if err != nil || d.reservation.ID == "" {
		return r, err
	}
	r.id, r.Amount = d.reservation.ID, d.reservation.Amount
	r.lasts = time.Duration(d.reservation.ExpiresInMS) * time.Millisecond
	r.mu.Lock()
	defer r.mu.Unlock()
	r.extends = time.AfterFunc(r.lasts/2, r.extend)
	return r, nil
}

// extend asks for as much time again, halfway to the end. What fails is tried again in half of what is left, until that is little.
func (r *Reservation) extend() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.settled || r.ctx.Err() != nil {
		return
	}
	body := map[string]any{"reservation": r.id, "ttl_ms": r.lasts.Milliseconds()}
	next := r.lasts / 2
	if err := r.client.claim(r.ctx, "/v1/extend", body, nil); err != nil {
		if next = r.lasts / 8; errors.As(err, new(*InvalidError)) {
			return // it is over
		}
	}
	r.extends.Reset(next)
}

const (
	// settleAttempts and settlePause bound how often a settle is sent: it may be repeated.
	settleAttempts = 3
	settlePause    = 100 * time.Millisecond
)

// Settle charges what was used and frees the rest; 0 cancels. It outlives the cancellation of ctx, since a customer who goes away
// has used what was served, and is sent up to three times while regiond is away. Only the first settle of a Reservation that
// succeeds does anything.
func (r *Reservation) Settle(ctx context.Context, actual int64) (Settlement, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.id == "" || r.settled {
		return Settlement{Replayed: r.settled}, nil
	}
	r.extends.Stop()
	ctx = context.WithoutCancel(ctx)
	var s Settlement
	var err error
	for attempt := range settleAttempts {
		if attempt > 0 {
			time.Sleep(settlePause)
		}
		err = r.client.claim(ctx, "/v1/settle", map[string]any{"reservation": r.id, "actual": actual}, &s)
		if err == nil || errors.As(err, new(*InvalidError)) {
			r.settled = true
			return s, err
		}
	}
	return Settlement{}, err
}

// Cancel frees what is held, if it was not settled. Use it in a defer.
func (r *Reservation) Cancel() {
	_, _ = r.Settle(r.ctx, 0) // it ends by itself otherwise
}

// claim makes a call about a reservation. The error is an *InvalidError where it is refused for good.
func (c *Client) claim(ctx context.Context, path string, body, into any) error {
	a, err := c.post(ctx, path, body, &Check{})
	switch {
	case errors.As(err, new(*InvalidError)):
		return err
	case err != nil:
	case a.status != http.StatusOK:
		err = fmt.Errorf("status %d %s", a.status, http.StatusText(a.status))
	case into != nil:
		err = json.Unmarshal(a.body, into)
	}
	if err != nil {
		return fmt.Errorf("%w: %w", ErrAway, err)
	}
	return nil
}

// granted is the part of an answer that a Reservation is made of.
type granted struct {
	ID          string `json:"id"`
	Amount      int64  `json:"amount"`
	ExpiresInMS int64  `json:"expires_in_ms"`
}
