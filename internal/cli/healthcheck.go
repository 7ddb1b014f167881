package cli

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"
)

// Healthcheck exits 0 when a running regiond is ready for traffic, else 1. A
// container image without a shell uses it as its health check.
func Healthcheck(ctx context.Context, args []string, stdout, stderr io.Writer) (int, error) {
	f := NewFlags("healthcheck", "healthcheck [--addr URL] [--ca-file FILE]", stderr)
	var t target
	t.flags(f, defaultAdmin, "admin")
	timeout := f.Duration("timeout", 2*time.Second, "how long to wait")
	if words, err := Parse(f, args); err != nil {
		return ExitUsage, err
	} else if len(words) > 0 {
		return ExitUsage, fmt.Errorf("unexpected argument %q", words[0])
	}
	ctx, cancel := context.WithTimeout(ctx, *timeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, t.url("/readyz"), http.NoBody)
	if err != nil {
		return ExitUsage, fmt.Errorf("--addr: %w", err)
	}
	res, err := t.do(req)
	if err != nil {
		return ExitFailed, err
	}
	defer res.Body.Close()
	body, _ := io.ReadAll(io.LimitReader(res.Body, 4096)) // only shown
	fmt.Fprintln(stdout, strings.TrimSpace(string(body)))
	if res.StatusCode != http.StatusOK {
		return ExitFailed, nil
	}
	return ExitOK, nil
}
