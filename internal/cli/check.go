package cli

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
	f := NewFlags("check", "check TENANT [-d user=42]… [--cost N] [--policy P] [--addr URL] [--token-file FILE] [-o json]", stderr)
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
	o.format = OutputFlag(f)
	words, err := Parse(f, args)
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

// Check asks a running regiond once: exit code 0 allowed, 1 denied, 2 anything else,
// such as an answer that is not regiond's.
func Check(ctx context.Context, args []string, stdout, stderr io.Writer) (int, error) {
	o, err := checkFlags(args, stderr)
	if err != nil {
		return ExitUsage, err
	}
	client, err := o.client()
	if err != nil {
		return ExitUsage, err
	}
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	req, err := o.request(ctx)
	if err != nil {
		return ExitUsage, err
	}
	return ask(client, req, *o.format, stdout, stderr)
}

// client trusts the system's authorities, or the one that was named. It follows no
// redirect: regiond sends none, and its target would be no regiond.
func (o *checkOptions) client() (*http.Client, error) {
	c := &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	if o.caFile == "" {
		return c, nil
	}
	trust, err := trustFile(o.caFile)
	if err != nil {
		return nil, err
	}
	c.Transport = &http.Transport{TLSClientConfig: trust, DisableKeepAlives: true}
	return c, nil
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
		return ExitUsage, fmt.Errorf("ask regiond: %w; is it running there?", err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(io.LimitReader(res.Body, 1<<20))
	if err != nil {
		return ExitUsage, fmt.Errorf("read the answer: %w", err)
	}
	if format == "json" {
		fmt.Fprintln(stdout, string(bytes.TrimSpace(text)))
	}
	a, code, err := readAnswer(res.StatusCode, text)
	if err == nil && format != "json" {
		a.print(stdout, stderr)
	}
	return code, err
}

// checkAnswer is what `check` shows of regiond's JSON: of a decision, which names what
// it rests on, or of a problem document, which has one of regiond's types.
type checkAnswer struct {
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
	Type         string `json:"type"`
	Title        string `json:"title"`
	Detail       string `json:"detail"`
	Errors       []struct {
		Pointer string `json:"pointer"`
		Detail  string `json:"detail"`
	} `json:"errors"`
}

// readAnswer returns an answer and the exit code that it stands for. An error means
// that regiond did not give it, whatever its status: there may be a proxy on the way,
// or another server on the port.
func readAnswer(status int, text []byte) (checkAnswer, int, error) {
	var a checkAnswer
	if json.Unmarshal(text, &a) == nil {
		switch {
		case !a.decided() && a.isProblem(): // neither yes nor no
			return a, ExitUsage, nil
		case a.Basis != "" && a.Allowed && status == http.StatusOK:
			return a, ExitOK, nil
		case a.Basis != "" && !a.Allowed && (status == http.StatusTooManyRequests || status == http.StatusServiceUnavailable):
			return a, ExitFailed, nil
		}
	}
	return a, ExitUsage, fmt.Errorf("status %d, and the answer is not regiond's: %.200q", status, text)
}

// decided is false without a decision, and for a check that was shed.
func (a *checkAnswer) decided() bool { return a.Basis != "" && (a.Allowed || a.Basis != "shed") }

// isProblem knows the types of problems that come without a decision.
func (a *checkAnswer) isProblem() bool {
	return strings.HasPrefix(a.Type, "urn:regiond:problem:") || strings.HasSuffix(a.Type, "#temporary-reduced-capacity")
}

// print gives the answer in one line for a person, and what is wrong with a request
// in a few.
func (a *checkAnswer) print(stdout, stderr io.Writer) {
	if !a.decided() {
		fmt.Fprintf(stderr, "%s: %s\n", a.Title, a.Detail)
		for _, e := range a.Errors {
			fmt.Fprintf(stderr, "  %s %s\n", e.Pointer, e.Detail)
		}
		return
	}
	word := "allowed"
	switch {
	case a.WouldDeny:
		word = "allowed, would be denied"
	case !a.Allowed:
		word = "denied"
	}
	line := fmt.Sprintf("%s  %s.%s: %d of %d left", word, a.Policy, a.Name, a.Remaining, a.Limit)
	switch {
	case a.Basis == "shed":
		line = fmt.Sprintf("%s  policy %s, undecided", word, a.Policy)
	case a.Name == "":
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
}
