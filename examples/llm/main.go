// Command llm shows a token-metered API behind regiond, in two regions that share one quota:
//
//	go run ./examples/llm
//
// It starts two regions of regiond, a fake model that streams, and a gateway in each region. A customer asks for completions until
// the tokens are used up. It needs nothing but Go, and leaves nothing behind.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "llm:", err)
		stop()
		os.Exit(1)
	}
}

// scenario is what customers do, and what they see.
type scenario struct {
	out      io.Writer
	gateways []*httptest.Server // one in each region

	mu   sync.Mutex
	last string // what the gateways have settled last
}

func run(ctx context.Context, out io.Writer) error {
	folder, err := os.MkdirTemp("", "regiond-llm-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(folder)
	fmt.Fprintln(out, "Building regiond and starting two regions …")
	r, err := startRegions(ctx, folder)
	if err != nil {
		return err
	}
	defer r.stop()
	model := httptest.NewServer(http.HandlerFunc(fakeModel))
	defer model.Close()
	s := &scenario{out: out}
	for _, regiond := range r.urls {
		server := httptest.NewServer(&gateway{regiond: regiond, model: model.URL, settled: s.settled})
		defer server.Close()
		s.gateways = append(s.gateways, server)
	}
	fmt.Fprintf(out, "eu-west %s and us-east %s share 2000 tokens a minute for each customer.\n", r.urls[0], r.urls[1])
	if err := s.untilRefused(ctx); err != nil {
		return err
	}
	return s.atOnce(ctx)
}

func (s *scenario) settled(reserved, used int64, got settlement) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.last = fmt.Sprintf("held %d, used %d: %d are free again", reserved, used, max(0, reserved-used))
	if got.Overrun > 0 {
		s.last = fmt.Sprintf("held %d, used %d: %d more than held", reserved, used, got.Overrun)
	}
}

// readTakes is how long a customer reads an answer before the next question.
const readTakes = 500 * time.Millisecond

// untilRefused has acme ask for answers of 500 tokens at most, in turn in both regions, until one is refused.
func (s *scenario) untilRefused(ctx context.Context) error {
	fmt.Fprintln(s.out, "\nacme streams answers of at most 500 tokens, in turn in both regions:")
	for i := range 20 {
		n := i % len(names)
		a, err := s.complete(ctx, n, "acme", 500)
		if err != nil {
			return err
		}
		if a.status == http.StatusOK {
			select { // what one region charges the other knows a moment later
			case <-ctx.Done():
				return ctx.Err()
			case <-time.After(readTakes):
			}
			s.mu.Lock()
			fmt.Fprintf(s.out, "  %s  200  %d chunks; %s; x-ratelimit-remaining-tokens was %s\n", names[n], a.chunks, s.last, a.left)
			s.mu.Unlock()
			continue
		}
		fmt.Fprintf(s.out, "  %s  %d  limit %s, Retry-After: %s\n             %s\n", names[n], a.status, a.limit, a.retryAfter, a.why)
		for n := range names {
			if a, err = s.complete(ctx, n, "acme", 20); err != nil {
				return err
			}
			fmt.Fprintf(s.out, "  %s  %d  with max_tokens 20: what is left is for smaller answers\n", names[n], a.status)
		}
		return nil
	}
	return fmt.Errorf("twenty answers were allowed")
}

// atOnce has globex open six streams in one region, which has four.
func (s *scenario) atOnce(ctx context.Context) error {
	fmt.Fprintln(s.out, "\nglobex opens six streams at once in eu-west, which allows four:")
	answers, errs := make([]answer, 6), make([]error, 6)
	var all sync.WaitGroup
	for i := range answers {
		all.Go(func() { answers[i], errs[i] = s.complete(ctx, 0, "globex", 150) })
	}
	all.Wait()
	passed, limit := 0, ""
	for i, a := range answers {
		if errs[i] != nil {
			return errs[i]
		}
		if a.status == http.StatusOK {
			passed++
		} else {
			limit = a.limit
		}
	}
	fmt.Fprintf(s.out, "  %d passed, %d were refused by limit %s\n", passed, len(answers)-passed, limit)
	return nil
}

// answer is what a customer gets.
type answer struct {
	status                 int
	chunks                 int
	limit, why, retryAfter string
	left                   string // tokens
}

// complete asks the gateway of a region for a completion, and reads it to its end.
func (s *scenario) complete(ctx context.Context, region int, key string, maxTokens int64) (a answer, err error) {
	body, err := json.Marshal(completion{Model: "fake", MaxTokens: maxTokens, Stream: true, Messages: []message{{"user", strings.Repeat("why ", 20)}}})
	if err != nil {
		return a, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, s.gateways[region].URL+"/v1/chat/completions", strings.NewReader(string(body)))
	if err != nil {
		return a, err
	}
	req.Header.Set("Authorization", "Bearer "+key)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return a, err
	}
	defer resp.Body.Close()
	a.status, a.retryAfter, a.left = resp.StatusCode, resp.Header.Get("Retry-After"), resp.Header.Get("X-Ratelimit-Remaining-Tokens")
	if a.status != http.StatusOK {
		var refusal struct {
			Error struct{ Code, Message string }
		}
		err = json.NewDecoder(resp.Body).Decode(&refusal)
		a.limit, a.why = refusal.Error.Code, refusal.Error.Message
		return a, err
	}
	lines := bufio.NewScanner(resp.Body)
	for lines.Scan() {
		if strings.HasPrefix(lines.Text(), "data: {") {
			a.chunks++
		}
	}
	return a, lines.Err()
}
