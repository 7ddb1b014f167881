package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"
)

// checkAnswer is what `check` shows of regiond's JSON: of a decision, which says what
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
		case a.Basis == "" && a.isProblem(): // no decision, so neither yes nor no
			return a, ExitUsage, nil
		case a.Basis != "" && a.Allowed && status == http.StatusOK:
			return a, ExitOK, nil
		case a.Basis != "" && !a.Allowed && (status == http.StatusTooManyRequests || status == http.StatusServiceUnavailable):
			return a, ExitFailed, nil
		}
	}
	return a, ExitUsage, fmt.Errorf("status %d, and the answer is not regiond's: %.200q", status, text)
}

// isProblem knows the types of problems that come without a decision.
func (a *checkAnswer) isProblem() bool {
	return strings.HasPrefix(a.Type, "urn:regiond:problem:") || strings.HasSuffix(a.Type, "#temporary-reduced-capacity")
}

// print gives the answer in one line for a person, and what is wrong with a request
// in a few.
func (a *checkAnswer) print(stdout, stderr io.Writer) {
	if a.Basis == "" {
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
}
