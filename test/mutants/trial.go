package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"sync"
	"time"
)

// fate is what became of a mutant.
type fate string

const (
	killed   fate = "killed"
	survived fate = "survived"
	wrong    fate = "wrong"
)

// result is a mutant's fate, and why it is not killed.
type result struct {
	mutant        mutant
	fate          fate
	why           string
	said          string // by the tests, or the compiler
	built, tested time.Duration
}

// baseline is what the tests of the table say without a mutant: nil when they pass.
type baseline struct {
	mu     sync.Mutex
	faults map[proof]error
}

// measure builds each package once and runs each test that some mutant needs.
func measure(ctx context.Context, l *lab, ms []mutant, workers int) *baseline {
	b := &baseline{faults: map[proof]error{}}
	proofs := map[string][]proof{}
	var dirs []string
	for _, m := range ms {
		for _, p := range m.killers {
			if _, ok := proofs[p.dir]; !ok {
				dirs = append(dirs, p.dir)
			}
			if _, ok := b.faults[p]; !ok {
				b.faults[p] = nil
				proofs[p.dir] = append(proofs[p.dir], p)
			}
		}
	}
	each(len(dirs), workers, func(i int) { b.measure(ctx, l, dirs[i], proofs[dirs[i]]) })
	return b
}

func (b *baseline) measure(ctx context.Context, l *lab, dir string, proofs []proof) {
	binary, said, err := l.build(ctx, dir, "", nil)
	if err == nil {
		defer os.Remove(binary)
	}
	for _, p := range proofs {
		fault := err
		if fault != nil {
			fault = fmt.Errorf("the tests of %s cannot be built: %w\n%s", dir, err, said)
		} else {
			fault = healthy(ctx, l, binary, p)
		}
		b.mu.Lock()
		b.faults[p] = fault
		b.mu.Unlock()
	}
}

// healthy says why a test does not pass without a mutant.
func healthy(ctx context.Context, l *lab, binary string, p proof) error {
	how, said, err := l.run(ctx, binary, p)
	switch {
	case err != nil:
		return err
	case how != passed:
		return fmt.Errorf("without a mutant %s %s, so its failure would prove nothing\n%s", p, how, said)
	}
	return nil
}

// try plants one mutant and asks its tests.
func try(ctx context.Context, l *lab, b *baseline, m mutant) result {
	r := result{mutant: m, fate: wrong}
	content, err := m.apply(l.root)
	if err != nil {
		r.why = err.Error()
		return r
	}
	if len(m.killers) == 0 {
		r.why = fmt.Sprintf("mutant %s names no test that has to notice it", m.name)
		return r
	}
	for _, p := range m.killers {
		if err := b.faults[p]; err != nil {
			r.why = err.Error()
			return r
		}
	}
	r.fate = killed
	for _, dir := range m.dirs() {
		r.ask(ctx, l, dir, content)
		if r.fate != killed {
			break
		}
	}
	return r
}

// ask builds the tests of a package with the mutant, and runs those that the mutant
// names until one does not fail.
func (r *result) ask(ctx context.Context, l *lab, dir string, content []byte) {
	start := time.Now()
	binary, said, err := l.build(ctx, dir, r.mutant.file, content)
	r.built += time.Since(start)
	if err != nil {
		r.fate, r.said = wrong, said
		r.why = fmt.Sprintf("build: %v", err)
		if e := (*exec.ExitError)(nil); errors.As(err, &e) {
			r.why = "it does not compile, so nobody had to notice it: a mutant is a mistake that somebody could run\n" + said
		}
		return
	}
	defer os.Remove(binary)
	start = time.Now()
	defer func() { r.tested += time.Since(start) }()
	for _, p := range r.mutant.killers {
		if p.dir != dir {
			continue
		}
		how, said, err := l.run(ctx, binary, p)
		r.said += said
		switch {
		case err != nil:
			r.fate, r.why = wrong, err.Error()
			return
		case how == passed:
			r.fate, r.why = survived, fmt.Sprintf("%s passed", p)
			return
		case how != failed:
			r.fate, r.why = wrong, fmt.Sprintf("%s %s instead of failing by an assertion\n%s", p, how, tail(said))
			return
		}
	}
}

// tail is the last lines of what was said.
func tail(said string) string {
	const most = 2000
	if len(said) <= most {
		return said
	}
	return "…" + said[len(said)-most:]
}

// each calls do for 0…n−1, so many at a time, in order as far as that goes.
func each(n, workers int, do func(i int)) {
	next := make(chan int)
	var wg sync.WaitGroup
	for range min(n, workers) {
		wg.Go(func() {
			for i := range next {
				do(i)
			}
		})
	}
	for i := range n {
		next <- i
	}
	close(next)
	wg.Wait()
}
