package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"time"
)

// completion is the part of OpenAI's chat completion request that a gateway reads.
type completion struct {
	Model         string          `json:"model"`
	Messages      []message       `json:"messages"`
	MaxTokens     int64           `json:"max_tokens"`
	Stream        bool            `json:"stream"`
	StreamOptions map[string]bool `json:"stream_options,omitempty"`
}

type message struct {
	Role    string `json:"role"`
	Content string `json:"content"`
}

// usage is how many tokens a completion has used. With stream_options.include_usage it comes in the last chunk.
type usage struct {
	PromptTokens     int64 `json:"prompt_tokens"`
	CompletionTokens int64 `json:"completion_tokens"`
	TotalTokens      int64 `json:"total_tokens"`
}

// promptTokens is an estimate, four characters a token. A gateway of your own has the tokenizer of its model.
func (c *completion) promptTokens() int64 {
	n := int64(0)
	for _, m := range c.Messages {
		n += int64(len(m.Content)+3) / 4
	}
	return n
}

// answerTokens is how long the answers of the fake model are, and tokenTakes how long a token takes.
const (
	answerTokens = 180
	tokenTakes   = 2 * time.Millisecond
)

// fakeModel streams as OpenAI's chat completions do: chunks as server-sent events, the usage at the end.
func fakeModel(w http.ResponseWriter, r *http.Request) {
	var c completion
	if err := json.NewDecoder(r.Body).Decode(&c); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	send := func(chunk any) {
		text, _ := json.Marshal(chunk) // of plain values
		fmt.Fprintf(w, "data: %s\n\n", text)
		w.(http.Flusher).Flush()
	}
	u := usage{PromptTokens: c.promptTokens(), CompletionTokens: min(answerTokens, c.MaxTokens)}
	u.TotalTokens = u.PromptTokens + u.CompletionTokens
	tick := time.NewTicker(tokenTakes)
	defer tick.Stop()
	for range u.CompletionTokens {
		select {
		case <-r.Context().Done(): // the customer has gone
			return
		case <-tick.C:
			send(map[string]any{"choices": []any{map[string]any{"delta": map[string]string{"content": "word "}}}})
		}
	}
	if c.StreamOptions["include_usage"] {
		send(map[string]any{"choices": []any{}, "usage": u})
	}
	fmt.Fprint(w, "data: [DONE]\n\n")
}
