package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"
)

// gateway is a reverse proxy in front of a model. Before a completion it reserves what that may use at most, and after it settles
// what it has used:
//
//	customer ─▶ gateway ─┬─ POST /v1/reserve ─▶ regiond      prompt + max_tokens; 429 where they do not fit
//	                     ├─ POST ─▶ model ─▶ chunks ─▶ customer
//	                     └─ POST /v1/settle ─▶ regiond       what the usage at the end says
//
// Any language makes these calls. For Go, middleware.Client.Reserve of this repository makes them.
type gateway struct {
	regiond, model string // URLs
	settled        func(reserved, used int64, s settlement)
}

// decision is the part of regiond's answer that a gateway needs.
type decision struct {
	Allowed     bool   `json:"allowed"`
	Name        string `json:"name"`
	Detail      string `json:"detail"`
	Reservation struct {
		ID          string `json:"id"`
		Amount      int64  `json:"amount"`
		ExpiresInMS int64  `json:"expires_in_ms"`
	} `json:"reservation"`
}

type settlement struct {
	Charged  int64 `json:"charged"`
	Overrun  int64 `json:"overrun"`
	Released bool  `json:"released"`
}

// ServeHTTP answers POST /v1/chat/completions. CHANGE: the tenant is that of an API key here, without further ado.
func (g *gateway) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var c completion
	tenant, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	if err := json.NewDecoder(io.LimitReader(r.Body, 1<<20)).Decode(&c); err != nil || !ok || c.MaxTokens < 1 {
		refuse(w, http.StatusBadRequest, "invalid_request_error", "needs a key, messages and max_tokens")
		return
	}
	amount := c.promptTokens() + c.MaxTokens
	var d decision
	status, header, err := g.ask(r.Context(), "/v1/reserve", map[string]any{"tenant": tenant, "amount": amount}, &d)
	for field, lines := range header { // headers: {format: openai} has regiond answer with the fields that OpenAI's clients read
		if strings.HasPrefix(field, "X-Ratelimit-") || field == "Retry-After" {
			w.Header()[field] = lines
		}
	}
	switch {
	case err != nil:
		refuse(w, http.StatusServiceUnavailable, "server_error", "the rate limiter is away")
	case status == http.StatusUnprocessableEntity:
		refuse(w, http.StatusBadRequest, "invalid_request_error", "max_tokens is more than one request may hold")
	case !d.Allowed:
		refuse(w, http.StatusTooManyRequests, d.Name, d.Detail)
	default:
		g.serve(w, r, &c, &d)
	}
}

// serve passes a completion on, and settles however it ends: a panic, too, charges what was streamed until then.
func (g *gateway) serve(w http.ResponseWriter, r *http.Request, c *completion, d *decision) {
	used := int64(0)
	ctx, stop := context.WithCancel(r.Context())
	go g.extend(ctx, d)
	defer func() {
		stop()
		var s settlement
		after, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), 5*time.Second) // the customer may have gone
		defer cancel()
		if _, _, err := g.ask(after, "/v1/settle", map[string]any{"reservation": d.Reservation.ID, "actual": used}, &s); err == nil {
			g.settled(d.Reservation.Amount, used, s)
		}
	}()
	c.Stream, c.StreamOptions = true, map[string]bool{"include_usage": true}
	body, _ := json.Marshal(c) // of plain values
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, g.model, bytes.NewReader(body))
	if err != nil {
		refuse(w, http.StatusInternalServerError, "server_error", err.Error())
		return
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil { // nothing was used
		refuse(w, http.StatusBadGateway, "server_error", "the model is away")
		return
	}
	defer resp.Body.Close()
	w.Header().Set("Content-Type", resp.Header.Get("Content-Type"))
	used = c.promptTokens() // the model has read it
	lines := bufio.NewScanner(resp.Body)
	for lines.Scan() {
		fmt.Fprintf(w, "%s\n", lines.Text())
		w.(http.Flusher).Flush()
		used = tokens(lines.Text(), used)
	}
}

// tokens is how many are used after a line of the stream: one more with each chunk, until the usage says how many there are.
func tokens(line string, before int64) int64 {
	data, ok := strings.CutPrefix(line, "data: {")
	if !ok {
		return before
	}
	var chunk struct {
		Usage *usage `json:"usage"`
	}
	if json.Unmarshal([]byte("{"+data), &chunk) == nil && chunk.Usage != nil {
		return chunk.Usage.TotalTokens
	}
	return before + 1
}

// extend keeps the reservation of a long stream.
func (g *gateway) extend(ctx context.Context, d *decision) {
	lasts := time.Duration(d.Reservation.ExpiresInMS) * time.Millisecond
	tick := time.NewTicker(max(lasts/3, time.Second))
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C: // what fails is tried again
			_, _, _ = g.ask(ctx, "/v1/extend", map[string]any{"reservation": d.Reservation.ID, "ttl_ms": lasts.Milliseconds()}, nil)
		}
	}
}

// ask calls regiond. The error is that it gave no answer.
func (g *gateway) ask(ctx context.Context, path string, body, into any) (int, http.Header, error) {
	text, err := json.Marshal(body)
	if err != nil {
		return 0, nil, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, g.regiond+path, bytes.NewReader(text))
	if err != nil {
		return 0, nil, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, nil, err
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	if err == nil && into != nil {
		err = json.Unmarshal(answer, into)
	}
	if err == nil && resp.StatusCode >= http.StatusInternalServerError {
		err = errors.New(resp.Status)
	}
	return resp.StatusCode, resp.Header, err
}

// refuse answers as OpenAI does.
func refuse(w http.ResponseWriter, status int, code, why string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(map[string]any{"error": map[string]string{"code": code, "message": why, "type": "requests"}})
}
