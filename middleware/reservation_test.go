package middleware_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/regiond/regiond/middleware"
)

// reserving answers as regiond does: reservations that last for so long, and settles that fail a few times first.
func reserving(lasts time.Duration, failures int32) http.HandlerFunc {
	var failed atomic.Int32
	return func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.URL.Path == "/v1/settle" && failed.Add(1) <= failures:
			w.WriteHeader(http.StatusServiceUnavailable)
		case r.URL.Path == "/v1/settle":
			_, _ = io.WriteString(w, `{"charged":70,"released":true,"overrun":0,"replayed":false,"pending":false}`)
		default:
			fmt.Fprintf(w, `{"allowed":true,"policy":"llm","reservation":{"id":"r1","amount":100,"expires_in_ms":%d}}`, lasts.Milliseconds())
		}
	}
}

// calls are those that a stub has received, with what they said of the reservation.
func calls(s *stub) string {
	var all []string
	for _, q := range s.requests() {
		text := strings.TrimPrefix(q.call, "POST /v1/")
		for _, member := range []string{"amount", "actual", "ttl_ms"} {
			if v, ok := q.body[member]; ok {
				text += fmt.Sprintf(" %v", v)
			}
		}
		all = append(all, text)
	}
	return strings.Join(all, ", ")
}

func reserve(t *testing.T, ctx context.Context, s *stub) *middleware.Reservation { //nolint:revive // t first, as everywhere
	t.Helper()
	c := newClient(t, middleware.Options{URL: s.url, Timeout: 5 * time.Second})
	r, err := c.Reserve(ctx, middleware.Check{Tenant: "acme"}, 100)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestReservationIsSettledOnce(t *testing.T) {
	s := newStub(t, reserving(time.Minute, 0))
	r := reserve(t, t.Context(), s)
	if !r.Allowed || r.Amount != 100 {
		t.Errorf("reserved %+v", r.Decision)
	}
	got, err := r.Settle(t.Context(), 70)
	if err != nil || got != (middleware.Settlement{Charged: 70, Released: true}) {
		t.Errorf("settled %+v, %v", got, err)
	}
	r.Cancel() // of the defer: it has been settled
	if got := calls(s); got != "reserve 100, settle 70" {
		t.Errorf("calls: %s", got)
	}
}

// A panic cancels, by the defer that Reserve asks for.
func TestReservationIsCancelledByAPanic(t *testing.T) {
	s := newStub(t, reserving(time.Minute, 0))
	func() {
		defer func() { _ = recover() }()
		r := reserve(t, t.Context(), s)
		defer r.Cancel()
		panic("upstream")
	}()
	if got := calls(s); got != "reserve 100, settle 0" {
		t.Errorf("calls: %s", got)
	}
}

// A customer who goes away has used what was served; a settle that fails is sent again.
func TestReservationIsSettledAfterItsContext(t *testing.T) {
	s := newStub(t, reserving(time.Minute, 2))
	ctx, cancel := context.WithCancel(t.Context())
	r := reserve(t, ctx, s)
	cancel()
	if got, err := r.Settle(ctx, 70); err != nil || got.Charged != 70 {
		t.Errorf("settled %+v, %v", got, err)
	}
	if got := calls(s); got != "reserve 100, settle 70, settle 70, settle 70" {
		t.Errorf("calls: %s", got)
	}
}

// A long stream is extended halfway to the end, for as long again.
func TestReservationIsExtended(t *testing.T) {
	extended := make(chan struct{}, 10)
	answer := reserving(200*time.Millisecond, 0)
	s := newStub(t, func(w http.ResponseWriter, r *http.Request) {
		answer(w, r)
		if r.URL.Path == "/v1/extend" {
			extended <- struct{}{}
		}
	})
	r := reserve(t, t.Context(), s)
	<-extended
	<-extended
	if _, err := r.Settle(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	if got := calls(s); !strings.HasPrefix(got, "reserve 100, extend 200, extend 200, ") || !strings.HasSuffix(got, ", settle 1") {
		t.Errorf("calls: %s", got)
	}
}

func TestReservationThatIsRefused(t *testing.T) {
	s := newStub(t, answers(http.StatusTooManyRequests, denied))
	r := reserve(t, t.Context(), s)
	if r.Allowed || r.RetryAfter != 6200*time.Millisecond {
		t.Errorf("refused: %+v", r.Decision)
	}
	r.Cancel() // holds nothing
	if got := calls(s); got != "reserve 100" {
		t.Errorf("calls: %s", got)
	}
	gone := newStub(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/v1/settle" {
			w.WriteHeader(http.StatusGone)
			return
		}
		reserving(time.Minute, 0)(w, r)
	})
	_, err := reserve(t, t.Context(), gone).Settle(t.Context(), 1)
	var invalid *middleware.InvalidError
	if !errors.As(err, &invalid) || invalid.Status != http.StatusGone {
		t.Errorf("forgotten: %v", err)
	}
}
