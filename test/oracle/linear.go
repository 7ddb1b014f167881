package oracle

import (
	"fmt"
	"maps"
	"slices"

	"github.com/anishathalye/porcupine"

	"github.com/regiond/regiond/quota"
)

// Input is one call of a recorded history on one partition.
type Input struct {
	Part     Part // the limits and their ceilings
	Op       Op
	Cost     int64
	Counters []quota.CounterKey // Question.Counters
}

// Output is what the call got, and the store's clock at the decision.
type Output struct {
	StoreUS int64
	Answer  Answer
}

// linearState is a partition between two calls.
type linearState struct {
	us     int64 // the store's clock at the last call
	clock  clock
	log    []Admission
	totals map[quota.CounterKey]quota.Counter
}

// Linear is the porcupine model of partitions of sliding_log limits: a history
// is linearizable when some order of its calls, in which none comes before one
// that had returned before it began, explains every answer to the last number.
// The store's clock must not have gone back during the history: an order in
// which it does is not accepted, which is also what keeps the search short.
func Linear() porcupine.Model {
	return porcupine.Model{
		Partition: byPartition,
		Init:      func() any { return linearState{} },
		Step: func(state, input, output any) (bool, any) {
			return state.(linearState).step(input.(Input), output.(Output))
		},
		Equal: func(a, b any) bool {
			x, y := a.(linearState), b.(linearState)
			return x.us == y.us && x.clock == y.clock && slices.Equal(x.log, y.log) && maps.Equal(x.totals, y.totals)
		},
		DescribeOperation: func(input, output any) string {
			in, out := input.(Input), output.(Output)
			return fmt.Sprintf("%c %d → %c %v at %d", in.Op, in.Cost, out.Answer.Outcome, out.Answer.States, out.StoreUS)
		},
	}
}

func (s linearState) step(in Input, out Output) (bool, any) {
	if out.StoreUS < s.us {
		return false, s
	}
	pt := &partition{clock: s.clock, usage: log{all: s.log}, needs: map[need]int64{}} // limits do not change in a history
	r := Region{partitions: map[string]*partition{in.Part.Name: pt}, totals: map[quota.CounterKey]quota.Counter{}}
	maps.Copy(r.totals, s.totals)
	want := r.Decide(out.StoreUS, Question{Op: in.Op, Cost: in.Cost, Parts: []Part{in.Part}, Counters: in.Counters})
	if want.Outcome != out.Answer.Outcome || !slices.Equal(want.States, out.Answer.States) {
		return false, s
	}
	return true, linearState{us: out.StoreUS, clock: pt.clock, log: pt.usage.(log).all, totals: r.totals}
}

func byPartition(history []porcupine.Operation) [][]porcupine.Operation {
	at := map[string]int{}
	var parts [][]porcupine.Operation
	for _, op := range history {
		name := op.Input.(Input).Part.Name
		i, ok := at[name]
		if !ok {
			i = len(parts)
			at[name] = i
			parts = append(parts, nil)
		}
		parts[i] = append(parts[i], op)
	}
	return parts
}
