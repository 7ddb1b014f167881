package daemon

import "context"

// runStack runs components, each on what stands before it, until ctx or one of
// them ends. Then they stop last first, each one whole before the next.
func runStack(ctx context.Context, components []func(context.Context) error) error {
	type running struct {
		stop context.CancelFunc
		done chan struct{}
	}
	ended := make(chan error, len(components))
	var stack []running
	for _, run := range components {
		own, stop := context.WithCancel(context.WithoutCancel(ctx))
		r := running{stop: stop, done: make(chan struct{})}
		go func() {
			ended <- run(own)
			close(r.done)
		}()
		stack = append(stack, r)
	}
	var err error
	select {
	case <-ctx.Done():
	case err = <-ended:
	}
	for i := len(stack) - 1; i >= 0; i-- {
		stack[i].stop()
		<-stack[i].done
	}
	return err
}
