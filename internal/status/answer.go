package status

import "github.com/regiond/regiond/quota"

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
