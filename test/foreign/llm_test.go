package foreign_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/sashabaranov/go-openai"

	"github.com/regiond/regiond/httpapi/answer"
	"github.com/regiond/regiond/quota"
)

// TestOpenAIFields: a client of OpenAI reads what `headers: {format: openai}` sends.
func TestOpenAIFields(t *testing.T) {
	d := quota.Decision{Allowed: true, Policy: "llm", Limits: []quota.LimitState{
		{Limit: &quota.Limit{Name: "requests", Units: 600, Window: time.Minute}, Remaining: 599, ResetAfter: 120 * time.Millisecond},
		{Limit: &quota.Limit{Name: "tokens", Units: 90_000, Window: time.Hour, Counts: quota.CountsTokens}, Remaining: 86_000, ResetAfter: 6*time.Minute - 1},
	}}
	model := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		var fields answer.Fields
		fields.RateLimit(&d, answer.Input{Headers: quota.Headers{Format: quota.OpenAI}})
		for _, f := range fields {
			w.Header()[f.Name] = []string{f.Value}
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"choices":[{"message":{"role":"assistant","content":"yes"}}]}`)
	}))
	defer model.Close()
	config := openai.DefaultConfig("key")
	config.BaseURL = model.URL
	before := time.Now()
	resp, err := openai.NewClientWithConfig(config).CreateChatCompletion(t.Context(), openai.ChatCompletionRequest{
		Model: "any", Messages: []openai.ChatCompletionMessage{{Role: "user", Content: "well?"}},
	})
	if err != nil {
		t.Fatal(err)
	}
	got := resp.GetRateLimitHeaders()
	if got.LimitRequests != 600 || got.RemainingRequests != 599 || got.LimitTokens != 90_000 || got.RemainingTokens != 86_000 {
		t.Errorf("%+v", got)
	}
	for _, row := range []struct {
		reset openai.ResetTime
		after time.Duration
	}{{got.ResetRequests, 120 * time.Millisecond}, {got.ResetTokens, 6 * time.Minute}} {
		if at := row.reset.Time(); at.Before(before.Add(row.after)) || at.After(time.Now().Add(row.after)) {
			t.Errorf("%s is %v from now, want %v", row.reset, time.Until(at), row.after)
		}
	}
}
