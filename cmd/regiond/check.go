package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"time"
)

// checkTimeout is far above the 50 ms in which a regiond answers.
const checkTimeout = 2 * time.Second

// check asks a running regiond once: exit code 0 allowed, 1 denied, 2 anything else.
func check(ctx context.Context, args []string, stdout, stderr io.Writer) (int, error) {
	f := newFlags("check", "check TENANT [-d user=42]… [--cost N] [--policy P] [--addr URL] [--token-file FILE] [-o json]", stderr)
	body := map[string]any{}
	dims := map[string]string{}
	f.Func("d", "a dimension as `name=value`; may be given several times", func(v string) error {
		name, value, ok := strings.Cut(v, "=")
		if !ok {
			return errors.New("is name=value")
		}
		dims[name] = value
		return nil
	})
	cost := f.String("cost", "1", "units to spend")
	policy := f.String("policy", "", "policy to ask, instead of the tenant's own")
	addr := f.String("addr", "http://127.0.0.1:8080", "regiond's data listener")
	key := f.String("idempotency-key", "", "makes a repeated call free for a minute")
	tokenFile := f.String("token-file", "", "file with the bearer token")
	format := outputFlag(f)
	words, err := parse(f, args)
	if err != nil {
		return exitUsage, err
	}
	if len(words) != 1 {
		return exitUsage, fmt.Errorf("takes one tenant, got %d words", len(words))
	}
	body["tenant"], body["cost"] = words[0], json.Number(*cost)
	if len(dims) > 0 {
		body["dimensions"] = dims
	}
	if *policy != "" {
		body["policy"] = *policy
	}
	payload, err := json.Marshal(body)
	if err != nil {
		return exitUsage, fmt.Errorf("--cost %s is not a number", *cost)
	}
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, baseURL(*addr)+"/v1/check", bytes.NewReader(payload))
	if err != nil {
		return exitUsage, fmt.Errorf("--addr: %w", err)
	}
	req.Header.Set("Content-Type", "application/json")
	if *key != "" {
		req.Header.Set("Idempotency-Key", *key)
	}
	if err := addToken(req, *tokenFile); err != nil {
		return exitUsage, err
	}
	return ask(req, *format, stdout, stderr)
}

// baseURL accepts an address with or without scheme, as curl does.
func baseURL(addr string) string {
	if !strings.Contains(addr, "://") {
		addr = "http://" + addr
	}
	return strings.TrimSuffix(addr, "/")
}

func addToken(req *http.Request, file string) error {
	if file == "" {
		return nil
	}
	token, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	req.Header.Set("Authorization", "Bearer "+strings.TrimSpace(string(token)))
	return nil
}

func ask(req *http.Request, format string, stdout, stderr io.Writer) (int, error) {
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return exitUsage, fmt.Errorf("ask regiond: %w; is it running there?", err)
	}
	defer res.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(res.Body, 1<<20))
	if err != nil {
		return exitUsage, fmt.Errorf("read the answer: %w", err)
	}
	if format == "json" {
		fmt.Fprintln(stdout, string(bytes.TrimSpace(answer)))
	} else if err := printAnswer(stdout, stderr, res.StatusCode, answer); err != nil {
		return exitUsage, err
	}
	switch res.StatusCode {
	case http.StatusOK:
		return exitOK, nil
	case http.StatusTooManyRequests, http.StatusServiceUnavailable:
		return exitFailed, nil
	default:
		return exitUsage, nil
	}
}

// printAnswer gives the answer in one line for a person.
func printAnswer(stdout, stderr io.Writer, status int, answer []byte) error {
	var a struct {
		Allowed      bool   `json:"allowed"`
		WouldDeny    bool   `json:"would_deny"`
		Policy       string `json:"policy"`
		Name         string `json:"name"`
		Limit        int64  `json:"limit"`
		Remaining    int64  `json:"remaining"`
		RetryAfterMS int64  `json:"retry_after_ms"`
		Basis        string `json:"basis"`
		Mode         string `json:"mode"`
		Reason       string `json:"reason"`
		Title        string `json:"title"`
		Detail       string `json:"detail"`
		Errors       []struct {
			Pointer string `json:"pointer"`
			Detail  string `json:"detail"`
		} `json:"errors"`
	}
	if err := json.Unmarshal(answer, &a); err != nil {
		return fmt.Errorf("status %d, and the answer is not regiond's: %.200q", status, answer)
	}
	if a.Basis == "" {
		fmt.Fprintf(stderr, "%s: %s\n", a.Title, a.Detail)
		for _, e := range a.Errors {
			fmt.Fprintf(stderr, "  %s %s\n", e.Pointer, e.Detail)
		}
		return nil
	}
	word := "allowed"
	switch {
	case a.WouldDeny:
		word = "allowed, would be denied"
	case !a.Allowed:
		word = "denied"
	}
	line := fmt.Sprintf("%s  %s.%s: %d of %d left", word, a.Policy, a.Name, a.Remaining, a.Limit)
	if a.Name == "" {
		line = fmt.Sprintf("%s  no limit of policy %s applies", word, a.Policy)
	}
	if a.RetryAfterMS > 0 {
		line += fmt.Sprintf(", retry after %v", time.Duration(a.RetryAfterMS)*time.Millisecond)
	}
	line += fmt.Sprintf("  (basis %s, mode %s", a.Basis, a.Mode)
	if a.Reason != "" {
		line += ", " + a.Reason
	}
	fmt.Fprintln(stdout, line+")")
	return nil
}
