package main

import (
	"bytes"
	"context"
	"crypto/tls"
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

// checkOptions are the words and flags of `check`.
type checkOptions struct {
	body      map[string]any
	addr      string
	key       string
	tokenFile string
	caFile    string
	format    *string
}

func checkFlags(args []string, stderr io.Writer) (*checkOptions, error) {
	f := newFlags("check", "check TENANT [-d user=42]… [--cost N] [--policy P] [--addr URL] [--token-file FILE] [-o json]", stderr)
	o := &checkOptions{body: map[string]any{}}
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
	f.StringVar(&o.addr, "addr", "http://127.0.0.1:8080", "regiond's data listener")
	f.StringVar(&o.key, "idempotency-key", "", "makes a repeated call free for a minute")
	f.StringVar(&o.tokenFile, "token-file", "", "`file` with the bearer token")
	f.StringVar(&o.caFile, "ca-file", "", "PEM `file` of the authority that signed regiond's certificate")
	o.format = outputFlag(f)
	words, err := parse(f, args)
	if err != nil {
		return nil, err
	}
	if len(words) != 1 {
		return nil, fmt.Errorf("takes one tenant, got %d words", len(words))
	}
	o.body["tenant"], o.body["cost"] = words[0], json.Number(*cost)
	if len(dims) > 0 {
		o.body["dimensions"] = dims
	}
	if *policy != "" {
		o.body["policy"] = *policy
	}
	return o, nil
}

// check asks a running regiond once: exit code 0 allowed, 1 denied, 2 anything else.
func check(ctx context.Context, args []string, stdout, stderr io.Writer) (int, error) {
	o, err := checkFlags(args, stderr)
	if err != nil {
		return exitUsage, err
	}
	client, err := o.client()
	if err != nil {
		return exitUsage, err
	}
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	req, err := o.request(ctx)
	if err != nil {
		return exitUsage, err
	}
	return ask(client, req, *o.format, stdout, stderr)
}

// client trusts the system's authorities, or the one that was named.
func (o *checkOptions) client() (*http.Client, error) {
	if o.caFile == "" {
		return http.DefaultClient, nil
	}
	pool, err := readPool(o.caFile)
	if err != nil {
		return nil, err
	}
	return &http.Client{Transport: &http.Transport{
		TLSClientConfig: &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: pool}, DisableKeepAlives: true,
	}}, nil
}

func (o *checkOptions) request(ctx context.Context) (*http.Request, error) {
	payload, err := json.Marshal(o.body)
	if err != nil {
		return nil, fmt.Errorf("--cost %v is not a number", o.body["cost"])
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, baseURL(o.addr)+"/v1/check", bytes.NewReader(payload))
	if err != nil {
		return nil, fmt.Errorf("--addr: %w", err)
	}
	req.Header.Set("Content-Type", "application/json")
	if o.key != "" {
		req.Header.Set("Idempotency-Key", o.key)
	}
	return req, addToken(req, o.tokenFile)
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

func ask(client *http.Client, req *http.Request, format string, stdout, stderr io.Writer) (int, error) {
	res, err := client.Do(req)
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
