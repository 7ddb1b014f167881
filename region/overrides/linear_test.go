package overrides_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/regiond/regiond/quota"
	"github.com/regiond/regiond/region/overrides"
	"github.com/regiond/regiond/test/redisserver"
)

// register is the override of one tenant: its version, "" for none, and its units. The version that an edit without an answer has
// made is not known before somebody is told it.
type register struct {
	version string
	units   int64
	unknown bool
}

// editOf is what a client asks for, and told what it is told; lost: nothing.
type (
	editOf struct {
		ifMatch string // "" for any
		ifNone  bool
		units   int64 // 0 deletes
	}
	told struct {
		version       string
		refused, lost bool
	}
)

// step returns what a register may be after a call, none where no register explains the answer.
func (r register) step(in editOf, out told) (next []register) {
	if r.unknown && out.version != "" { // it is the one that is told, or becomes the one that was replaced
		next = append(next, register{version: out.version, units: r.units}.step(in, out)...)
	}
	matches := (in.ifMatch == "" || !r.unknown && in.ifMatch == r.version) && (!in.ifNone || r.units == 0)
	switch {
	case out.lost && !matches:
		return []register{r}
	case out.lost:
		return []register{r, {units: in.units, unknown: in.units > 0}}
	case out.refused:
		if !matches && !r.unknown && out.version == r.version {
			next = append(next, r)
		}
	case matches && in.units == r.units: // nothing is changed
		if !r.unknown && out.version == r.version {
			next = append(next, r)
		}
	case matches && in.units == 0:
		next = append(next, register{})
	case matches && (r.unknown || out.version != r.version):
		next = append(next, register{version: out.version, units: in.units})
	}
	return next
}

func overrideOfOneTenant() porcupine.Model {
	return (&porcupine.NondeterministicModel{
		Init: func() []any { return []any{register{}} },
		Step: func(state, in, out any) (all []any) {
			for _, next := range state.(register).step(in.(editOf), out.(told)) {
				all = append(all, next)
			}
			return all
		},
		Equal: func(a, b any) bool { return a == b },
	}).ToModel()
}

// losing is a Redis that loses one call in forty, and one reply in forty of what it carries out.
func losing(ask overrides.Eval) overrides.Eval {
	return func(ctx context.Context, script, key string, args ...any) (any, error) {
		fate := rand.IntN(40)
		if fate == 0 {
			return nil, errors.New("the call is lost")
		}
		reply, err := ask(ctx, script, key, args...)
		if fate == 1 {
			return nil, errors.New("the reply is lost")
		}
		return reply, err
	}
}

// TestEditsLinearizable: some order of all edits of a tenant explains every answer, in a region of two processes on one Redis that
// loses calls and replies: no edit is lost that was answered, and none with If-Match replaces another version.
func TestEditsLinearizable(t *testing.T) {
	ask := eval(redisserver.Start(t, redisserver.Options{}).Client())
	processes := []*process{newProcess(t, losing(ask)), newProcess(t, losing(ask))}
	for _, tenant := range []string{"a", "b", "c", "d", "e", "f", "g", "h"} {
		calls := editByMany(t, processes, tenant)
		if r := porcupine.CheckOperationsTimeout(overrideOfOneTenant(), calls, 20*time.Second); r != porcupine.Ok {
			t.Fatalf("%d edits: %v", len(calls), r)
		}
	}
}

// editByMany has four clients edit the override of one tenant, each with the version that it was told last, or without.
func editByMany(t *testing.T, processes []*process, tenant string) (calls []porcupine.Operation) {
	began := time.Now()
	var mu sync.Mutex
	var clients sync.WaitGroup
	for range 4 {
		clients.Go(func() {
			seen := ""
			for range 30 {
				in := editOf{units: rand.Int64N(4) * 100}
				if fate := rand.IntN(8); fate < 5 {
					in.ifMatch = seen
				} else if fate == 5 {
					in.ifNone = true
				}
				o := quota.Override{Tenant: tenant, Deleted: in.units == 0, Policy: "standard"}
				if o.Deleted {
					o.Policy = ""
				} else {
					o.Limits = []quota.OverrideLimit{{Name: "sustained", Units: in.units}}
				}
				called := time.Since(began)
				r, err := processes[rand.IntN(2)].Edit(t.Context(), quota.Edit{Override: o, IfMatch: in.ifMatch, IfNone: in.ifNone})
				returned := time.Since(began)
				out := told{refused: r.Refused}
				switch {
				case errors.Is(err, overrides.ErrContended):
					continue
				case err != nil:
					out.lost, returned = true, time.Hour // it may yet be carried out
				case r.Refused && r.Before != nil, !r.Refused && r.After != nil:
					out.version = r.Version.String()
				}
				seen = out.version
				mu.Lock()
				// Who gets no answer goes on as another client.
				calls = append(calls, porcupine.Operation{ClientId: len(calls), Input: in, Output: out, Call: int64(called), Return: int64(returned)})
				mu.Unlock()
			}
		})
	}
	clients.Wait()
	return calls
}
