package load

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"syscall"

	"github.com/regiond/regiond/quota"
)

// Answer is what clients read of an answer in JSON: of a decision, which has a Basis, or of a problem document, which
// has a Title.
type Answer struct {
	Allowed      bool   `json:"allowed"`
	WouldDeny    bool   `json:"would_deny"` // allowed because the policy only observes
	Policy       string `json:"policy"`
	Name         string `json:"name"` // of the tightest limit
	Limit        int64  `json:"limit"`
	Remaining    int64  `json:"remaining"`
	RetryAfterMS int64  `json:"retry_after_ms"`
	Basis        string `json:"basis"`
	Mode         string `json:"mode"`
	Reason       string `json:"reason"` // "" unless the answer is a degraded one

	Type   string             `json:"type"`
	Title  string             `json:"title"`
	Detail string             `json:"detail"`
	Errors []quota.FieldError `json:"errors"`
}

// answer is what came of one check: a decision, or why there is none.
type answer struct {
	Answer
	fault string // one of those below, or "status 400" and its like; "" for a decision
}

// Faults. They are few, so that they can be counted; the Detail of an answer says more.
const (
	faultTimeout = "timeout"            // no answer within the timeout
	faultRefused = "connection refused" // nothing listens there
	faultBroken  = "connection broken"  // it ended before the answer did
	faultNetwork = "network"            // any other fault of the connection
	faultForeign = "not an answer of regiond"
)

// ask sends a check and reads its answer.
func ask(next http.RoundTripper, r *http.Request) answer {
	code, body, err := exchange(next, r)
	if err != nil {
		return failed(fault(err), err.Error())
	}
	var a Answer
	err = json.Unmarshal(body, &a)
	switch code {
	case http.StatusOK, http.StatusTooManyRequests, http.StatusServiceUnavailable:
		if err == nil && a.Basis != "" {
			return answer{Answer: a}
		}
		if err != nil || a.Title == "" || code != http.StatusServiceUnavailable {
			return failed(faultForeign, fmt.Sprintf("status %d, %.100q", code, body))
		}
		// A problem document with 503 is a regiond that could not decide.
	}
	text := a.Title
	if a.Detail != "" {
		text += ": " + a.Detail
	}
	for _, e := range a.Errors {
		text += "; " + e.Pointer + " " + e.Detail
	}
	return failed("status "+strconv.Itoa(code), text)
}

func failed(fault, detail string) answer {
	return answer{fault: fault, Answer: Answer{Detail: detail}}
}

func exchange(next http.RoundTripper, r *http.Request) (code int, body []byte, err error) {
	res, err := next.RoundTrip(r)
	if err != nil {
		return 0, nil, err
	}
	defer res.Body.Close()
	body, err = io.ReadAll(io.LimitReader(res.Body, 1<<20)) // far above any answer to a check
	return res.StatusCode, body, err
}

// fault is the word for an error of a call.
func fault(err error) string {
	var timed net.Error
	switch {
	case errors.As(err, &timed) && timed.Timeout(): // context.DeadlineExceeded is one, too
		return faultTimeout
	case errors.Is(err, syscall.ECONNREFUSED):
		return faultRefused
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE):
		return faultBroken
	}
	return faultNetwork
}
